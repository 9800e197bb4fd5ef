# Corral. `make help` lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO      ?= go
TOOL    := $(GO) tool -modfile=hack/tools/go.mod
LINT    := $(GO) tool -modfile=hack/lint/go.mod golangci-lint
VALE    := $(GO) tool -modfile=hack/vale/go.mod vale --config hack/vale/vale.ini --output line
LDFLAGS := -s -w -X main.version=$(VERSION)
P       ?= ./...
SEEDS   ?= 1-20
MINUTES ?= 30
T       ?= .
FUZZTIME ?= 60s
IMAGE   ?= corral:dev

export CGO_ENABLED ?= 0
# One set of flags for what is built and tested here: with others, nothing of the build cache is shared. DWARF, which binaries leave out, isn't made.
export GOFLAGS := -buildvcs=false -trimpath -gcflags=all=-dwarf=false

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## Build bin/corral and bin/corral-demo.
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: image
image: ## The controller's image without a container engine: dist/corral.tar, dist/image, and its bill of materials (CycloneDX). PLATFORMS, IMAGE, PUSH for more.
	$(GO) run ./hack/image -version '$(VERSION)' -tag '$(IMAGE)' $(if $(PLATFORMS),-platforms '$(PLATFORMS)') $(if $(PUSH),-push '$(PUSH)')

.PHONY: release-dry-run
release-dry-run: ## Build a release without publishing it, push image and chart to a registry on this machine, install both from there, and run jobs.
	@echo 'Building goreleaser and the binaries of all platforms. The first run takes a long time.'
	$(GO) tool -modfile=hack/release/go.mod goreleaser release --snapshot --clean --skip=sign
	$(MAKE) image
	$(GO) run ./sim/localcluster/cmd/assets
	CORRAL_RELEASE='$(CURDIR)/dist' $(GO) test -count=1 -run TestAReleaseInARegistry ./test/chart/release

.PHONY: demo
demo: ## Run Corral on this machine with a real API server and a simulated GitHub. Needs only Go, git and make. ARGS for flags, such as --stay to explore.
	@$(GO) run ./sim/gobuild/cmd/gobuild -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	bin/corral-demo $(ARGS)

.PHONY: bench
bench: build ## Measure latency, requests, CPU and memory on this machine; docs/performance.md explains. ARGS for flags.
	$(GO) run ./sim/bench $(ARGS)

# Tests and linters have garbage collected later than usual: it takes memory, and saves CPU. Linters take 5 GB so.
test: export GOGC := 400
lint: export GOGC := 200

# Packages whose values many goroutines share.
SHARED := ./internal/turns ./internal/github/... ./internal/quota ./internal/share ./internal/webhook ./internal/worker ./controllers/jobs ./controllers/policies ./controllers/runners ./controllers/webhooks

# These take the longest and wait much: they come first, and others beside them.
LONG := ./test/abuse ./test/suite ./test/chaos

# Everything is compiled before the first test, so that no story competes with compilers for the CPUs. Four packages are
# tested at once: each has one CPU for Go code (-cpu 1), controllers and their children have all.
.PHONY: test
test: ## All tests that need no hardware, the real API server included, with one storm. The same tests for every commit.
	$(GO) run ./sim/localcluster/cmd/assets
	$(GO) run ./sim/localcluster/cmd/assets kubectl
	@echo 'Compiling the tests.'
	@$(GO) build $$($(GO) list -deps -test -f '{{if and (not .Standard) .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' $$($(GO) list ./... | grep -v /test/interop/) | grep -v ' ')
	$(GO) run ./sim/harness/cmd/binaries
	$(GO) test -vet=off -cpu 1 -timeout 40m -p 4 $(LONG) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(LONG))" | grep -v /test/interop/)

.PHONY: nightly
nightly: properties ## What .ci/run leaves out, in some hours: more mutations and reviews, all storms, two replicas, everything under the race detector, interop, mutants.
	$(MAKE) chaos failover test-race interop mutants

.PHONY: properties
properties: ## The tests of properties, with more generated cases than make test has.
	CORRAL_MUTATIONS=5000 $(GO) test -count=1 -timeout 60m -run 'Mutated|VetPasses|MistakesOfForty' ./internal/compile ./internal/cli ./test/suite
	CORRAL_REVIEWS=300 $(GO) test -count=1 -timeout 60m ./test/review

.PHONY: test-one
test-one: ## One package, one test: make test-one P=./internal/scaling T=TestDecide.
	$(GO) test -run '$(T)' -v $(P)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (60s); a finding stays as a seed under testdata/fuzz.
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
	  for f in $$($(GO) test -list '^Fuzz' ./$$p | grep '^Fuzz'); do \
	    echo "== $$p $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 ./$$p; \
	  done; \
	done

.PHONY: mutants
mutants: ## Break rules and the policy engine on purpose, one by one: each fault must fail a test. M for an expression of names.
	$(GO) run ./test/mutants $(if $(M),'$(M)')

.PHONY: shape
shape: ## Print how large code and docs are: statements, structs, methods, names, words. REV for a revision to compare with.
	$(GO) run ./hack/shape $(REV)

.PHONY: chaos
chaos: ## A storm of every fault for each of SEEDS (1-20), four at a time; one that fails tells its schedule and its log.
	$(GO) run ./sim/localcluster/cmd/assets
	CORRAL_CHAOS_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 60m -run TestStorm -v ./test/chaos

.PHONY: failover
failover: ## Two replicas through storms for MINUTES (30), beginning with the first of SEEDS. In each storm one replica is stopped for longer than its lease. For nightly runs.
	$(GO) run ./sim/localcluster/cmd/assets
	CORRAL_CHAOS_SEEDS=$(SEEDS) CORRAL_FAILOVER_MINUTES=$(MINUTES) $(GO) test -count=1 -timeout 180m -run TestFailover -v ./test/chaos

.PHONY: interop interop-github interop-flux interop-argocd interop-prometheus
interop: interop-github interop-flux interop-argocd interop-prometheus ## Meet GitHub's published descriptions, and Flux's, Argo CD's and Prometheus's real programs, built from their modules (25 CPU-minutes the first time).

interop-github: ## What GitHub publishes of its REST API and webhooks alone (31 MB by npm, once).
	folder=$$(test/interop/github/fetch.sh); CORRAL_INTEROP_GITHUB=$$folder $(GO) test -count=1 -timeout 20m ./test/interop/github

interop-flux: ## Flux's source-controller and kustomize-controller alone.
	$(GO) run ./sim/localcluster/cmd/assets
	CORRAL_INTEROP=1 $(GO) test -count=1 -timeout 60m -v ./test/interop/flux

interop-argocd: ## Argo CD's server of plugins and its health scripts alone.
	$(GO) -C test/interop/argocd test -count=1 -timeout 60m -v ./...

interop-prometheus: ## Prometheus's engine alone: alerts and dashboard, over ten minutes of trouble.
	$(GO) run ./sim/localcluster/cmd/assets
	CORRAL_INTEROP=1 $(GO) test -count=1 -timeout 40m -v ./test/interop/prometheus

.PHONY: test-race
test-race: ## All tests under the race detector (needs a C compiler). RACED for some packages only.
	$(GO) run ./sim/localcluster/cmd/assets
	$(GO) run ./sim/localcluster/cmd/assets kubectl
	CGO_ENABLED=1 $(GO) test -race -vet=off -timeout 60m $(or $(RACED),./...)

.PHONY: test-race-shared
test-race-shared: ## The packages whose values many goroutines share, under the race detector. Skipped without a C compiler.
	@if command -v "$${CC:-gcc}" >/dev/null; then $(MAKE) test-race RACED='$(SHARED)'; else echo 'There is no C compiler, so the race detector cannot run.'; fi

.PHONY: e2e
e2e: build ## Jobs on a real kubelet, containerd, runc and Docker; skipped with a word where that can't be, or failed with E2E=required.
	hack/e2e/run.sh

.PHONY: generate
generate: ## Generate deep copies, CRDs, RBAC, the kustomize base, the CUE schema, the schemas of policies' inputs and the reference pages.
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt crd paths=./apis/... output:crd:dir=charts/corral/files/crds
	$(TOOL) controller-gen rbac:roleName=corral paths=./controllers/... output:rbac:dir=charts/corral/files/rbac
	$(GO) run ./hack/generate

.PHONY: fmt
fmt: ## Format.
	$(LINT) fmt

.PHONY: lint
lint: ## Lint, with the fences between packages.
	$(LINT) run --allow-parallel-runners ./...

# Reference pages are left out: their sentences are comments and messages of Go code.
PAGES := '*.md' ':!docs/reference' ':!testdata' ':!*/testdata/*'

.PHONY: prose
prose: ## Check the spelling and the phrases of the hand-written pages with Vale. Skipped without a C compiler.
	@if command -v "$${CC:-cc}" >/dev/null; then CGO_ENABLED=1 $(VALE) $$(git ls-files $(PAGES)); else echo 'No C compiler: the prose is not checked.'; fi

.PHONY: site
site: ## Build the documentation site into dist/site with Hugo, which it builds first. A link to a missing page or heading is an error.
	@echo 'Building Hugo if necessary, which takes minutes, and then the site.'
	CGO_ENABLED=0 $(GO) -C hack/site tool hugo --destination ../../dist/site --panicOnWarning --minify $(if $(BASE_URL),--baseURL '$(BASE_URL)')

.PHONY: workflows
workflows: ## Check .github/workflows with actionlint.
	$(TOOL) actionlint -shellcheck= -pyflakes=

.PHONY: verify
verify: generate lint prose workflows ## Generate, lint (including the format), check the prose and the workflows; then fail if anything in the tree changed.
	@test -z "$$(git status --porcelain)" || { git status --short; git --no-pager diff --stat; echo 'The tree is not clean: commit what was generated.'; exit 1; }

.PHONY: clean
clean: ## Remove what was built; the cached control plane stays in .cache.
	rm -rf bin dist
