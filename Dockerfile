# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# The controller's image: one static binary and the root certificates, the same files as `make image` packs without Docker.
#   docker build --build-arg VERSION=$(git describe --tags --always) -t corral:dev .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY hack/image/go.mod hack/image/go.sum hack/image/
RUN go mod download && go -C hack/image mod download
COPY apis apis
COPY charts charts
COPY cmd/corral cmd/corral
COPY controllers controllers
COPY hack/image hack/image
COPY internal internal
COPY policies policies
COPY schema schema
ARG VERSION=dev
ARG TARGETARCH
RUN go -C hack/image run . -rootfs /rootfs -version "$VERSION" -platforms "linux/${TARGETARCH:-$(go env GOARCH)}"

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Corral" \
      org.opencontainers.image.description="Self-hosted GitHub Actions runners on Kubernetes, declared in CUE and kept in Git" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /rootfs/ /
ENV PATH=/usr/local/bin
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/corral"]
