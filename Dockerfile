# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# The controller's image: one static binary and the CA certificates.
#   docker build --build-arg VERSION=$(git describe --tags --always) -t corral:dev .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY cmd/corral cmd/corral
COPY controllers controllers
COPY internal internal
COPY schema schema
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /corral ./cmd/corral

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Corral" \
      org.opencontainers.image.description="Self-hosted GitHub Actions runners on Kubernetes, declared in CUE and kept in Git" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /corral /usr/local/bin/corral
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/corral"]
