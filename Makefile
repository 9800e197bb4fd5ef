# Corral. `make help` lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO      ?= go
TOOL    := $(GO) tool -modfile=hack/tools/go.mod
LDFLAGS := -s -w -X main.version=$(VERSION)

export CGO_ENABLED ?= 0

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## Build bin/corral and bin/corral-demo.
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

##@ Generated files

.PHONY: generate
generate: ## Generate deep copies, CRDs, RBAC, the CUE schema and the reference pages.
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	$(TOOL) controller-gen crd paths=./apis/... output:crd:dir=charts/corral/files/crds
	$(TOOL) controller-gen rbac:roleName=corral paths=./controllers/... output:rbac:dir=charts/corral/files/rbac
	$(GO) run ./hack/schemagen
