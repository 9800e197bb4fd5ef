# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# The controller's image: one static binary and root certificates. `make image` builds such an image without Docker.
#   docker build --build-arg VERSION=$(git describe --tags --always) -t corral:dev .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY charts charts
COPY cmd/corral cmd/corral
COPY controllers controllers
COPY internal internal
COPY policies policies
COPY schema schema
ARG VERSION=dev
ARG TARGETARCH
RUN CGO_ENABLED=0 GOARCH="$TARGETARCH" go build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w -X main.version=$VERSION" -o /corral ./cmd/corral

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Corral" \
      org.opencontainers.image.description="Self-hosted GitHub Actions runners on Kubernetes, declared in CUE and kept in Git" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /corral /usr/local/bin/
ENV PATH=/usr/local/bin
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/corral"]
