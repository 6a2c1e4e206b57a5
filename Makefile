# `make help` lists the targets.

# The flags of the go command do not come from the user's environment, so that a build is the same everywhere: without C, so that programs
# do not depend on the libraries of a machine, and without the path of this clone, so that another one does not compile all packages again.
# Tools, linters and tests without the race detector use the same flags, and so the same compiled packages. The version is stamped below and
# not by the go command, which would refuse where git distrusts the owner of the checkout.
export GOFLAGS := -mod=readonly -buildvcs=false -trimpath
export CGO_ENABLED := 0
export GOWORK := off
# A program with the race detector would sleep a second when it exits: each test binary, and each that a test runs as another program.
export GORACE := atexit_sleep_ms=0

MODULE := github.com/keelson-dev/keelson
VERSION := $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)

# kube/go.mod names the Kubernetes release whose components are built. `make kube KUBE_VERSION=v1.35.4` builds those of another one.
KUBE_SOURCES := $(shell find kube -name '*.go' -o -name go.mod -o -name go.sum) hack/kube.sh
KUBE_DEFAULT := $(shell awk '$$1 == "k8s.io/kubernetes" && $$2 ~ /^v/ { print $$2; exit }' kube/go.mod)
KUBE_VERSION := $(KUBE_DEFAULT)

TOOLS := go tool -modfile=go.tools.mod
LINT := go tool -modfile=go.lint.mod

# Where the programs are built. A release builds them elsewhere, for other architectures: GOARCH=arm64 BIN=dist/build/arm64
BIN ?= bin

# Arguments for the program that a target runs: make test ARGS='-run TestX -v'
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: build machines containers ## Start a Kubernetes API with all controllers on this host (ARGS: flags of keelson up)
	bin/keelson up $(ARGS)

# Without these VirtualMachines have no driver, and say so; all else works.
.PHONY: machines
machines:
	@hack/require.sh qemu-system-x86_64 qemu-img || echo "Without QEMU there are no VirtualMachines; all else works." >&2
	@hack/launcher-image.sh bin/launcher || echo "Without the image of the launcher there are no machines in Pods; all else works." >&2
	@hack/guest.sh bin/guest || echo "Without a guest VirtualMachines need spec.image; all else works." >&2

# Without these the node is simulated, and keelson up says so.
.PHONY: containers
containers:
	@{ $(MAKE) --no-print-directory node && hack/require.sh runc $$(PATH=$$PATH:/usr/sbin:/sbin command -v iptables >/dev/null || echo nft); } || \
		echo "Without a container runtime the node is simulated; all else works." >&2

.PHONY: build
build: $(BIN)/keelson $(BIN)/keelson-kube $(BIN)/kubectl plugins ## Build bin/keelson, bin/keelson-kube and bin/kubectl

# kubectl finds its plugins by their names in PATH, and the completion of their arguments, too.
PLUGINS := vm crontab cluster

.PHONY: plugins
plugins: | $(BIN)/keelson
	@for plugin in $(PLUGINS); do ln -sf keelson $(BIN)/kubectl-$$plugin; ln -sf keelson $(BIN)/kubectl_complete-$$plugin; done

# The go command knows best whether this is up to date.
.PHONY: $(BIN)/keelson
$(BIN)/keelson:
	hack/build.sh $@ -ldflags "-s -w -X $(MODULE)/internal/version.Version=$(VERSION)" ./cmd/keelson

$(BIN)/keelson-kube: $(KUBE_SOURCES)
	hack/kube.sh $(KUBE_DEFAULT) $@

# The engine local finds other versions by these names.
$(BIN)/keelson-kube-%: $(KUBE_SOURCES) $(wildcard kube/go.v*)
	hack/kube.sh $* $@

.PHONY: kube
kube: $(BIN)/keelson-kube$(if $(filter-out $(KUBE_DEFAULT),$(KUBE_VERSION)),-$(KUBE_VERSION)) ## Build the components of another Kubernetes version into bin (KUBE_VERSION=v1.35.4)

$(BIN)/kubectl: | $(BIN)/keelson-kube
	ln -sf keelson-kube $@

# The client for laptops. It must not be built as a link of bin/keelson, so it has a folder of its own.
.PHONY: client
client: ## Build bin/client/kubectl-keelson, the client for other hosts (GOOS=darwin GOARCH=arm64)
	hack/build.sh $(BIN)/client/kubectl-keelson$(if $(filter windows,$(GOOS)),.exe) \
		-ldflags "-s -w -X $(MODULE)/internal/version.Version=$(VERSION)" ./cmd/kubectl-keelson

# The go command knows best whether this is up to date.
.PHONY: guest
guest: ## Build bin/guest, the default guest of VirtualMachines
	hack/guest.sh bin/guest

.PHONY: launcher
launcher: ## Build bin/launcher, the files of the image of the launcher, for the driver pod
	hack/launcher-image.sh bin/launcher

# containerd has plugins that the node disables; without them there are 49 packages less.
NODE_TAGS := no_btrfs,no_devmapper,no_tracing,no_zfs
NODE_BUILD := GOFLAGS="$(GOFLAGS) -tags=$(NODE_TAGS)"

# The go command knows best whether this is up to date.
.PHONY: node
node: ## Build bin/node, the programs of a real node (2 minutes the first time)
	mkdir -p $(BIN)/node
	cd node && $(NODE_BUILD) ../hack/build.sh ../$(BIN)/node/ -ldflags '-s -w' ./cmd/... $$(go list tool)

# The go command knows best whether this is up to date.
.PHONY: s3server
s3server: ## Build bin/s3server, the server for the tests of a snapshot store (2 minutes the first time)
	mkdir -p $(BIN)
	cd test/s3server && go build -ldflags '-s -w' -o ../../$(BIN)/s3server .

.PHONY: debian
debian: ## Build bin/debian, the cloud image for a test of its disks and logins (some minutes; cached)
	hack/debian-image.sh bin/debian/disk.qcow2

# Emulated, which it is without KVM, it takes about half an hour, which CI does not have.
.PHONY: node-debian
node-debian: build node ## Run the tests of a real node on Debian with cgroups v2, in QEMU (ARGS: as in go test -run)
	hack/node-debian.sh $(ARGS)

# It takes more than 20 minutes, which CI does not have.
.PHONY: conformance
conformance: build node ## Run conformance tests of Kubernetes against two real nodes (ARGS: flags of ginkgo, instead of the selection)
	hack/conformance.sh $(ARGS)

.PHONY: systemd-debian
systemd-debian: build ## Test the units of config/systemd on Debian in QEMU, through restarts and a reboot (minutes)
	hack/systemd-debian.sh

# A test whose name begins with TestLong takes more than about ten seconds on a quiet machine with two cores, and is not the
# only end-to-end test of its kind. TestSmoke is such a test that CI runs nevertheless. Some packages take minutes on a slow machine; Go would end a package after ten. Many tests wait for
# processes, so three packages at a time use two cores better than two, which is Go's default there. make lint runs go vet.
# The race detector needs cgo.
RACE_TEST := env CGO_ENABLED=1 go test -race
GO_TEST := go run ./internal/testing/env/run -- $(RACE_TEST) -vet=off -ldflags=-s -timeout 75m -p $(shell echo $$(($$(nproc) * 3 / 2)))
# Benchmarks are a module of their own, and start control planes of their own.
BENCH_TEST := $(RACE_TEST) -vet=off -ldflags=-s -timeout 75m
# Those that take longest begin first, so that none of them is left alone at the end.
LONGEST := $(addprefix ./,test/e2e/node internal/driver/qemu test/e2e/life test/install test/e2e)
# The packages of the root module with tests whose names begin so.
packages_with = $(patsubst %/,%,$(sort $(dir $(addprefix ./,$(shell git grep -lE --untracked '^func ($(1))' -- '*_test.go' ':!node' ':!bench')))))
SLOW := TestLong|TestSmoke
LONG_PACKAGES = $(LONGEST) $(filter-out $(LONGEST) ./internal/cron,$(call packages_with,$(SLOW)))
# An area is the name of a folder: that of a package, or one above it.
AREA ?=
in_area = $(strip $(if $(AREA),$(foreach package,$(1),$(if $(filter $(AREA),$(subst /, ,$(package))),$(package))),$(1)))

.PHONY: test-needs
test-needs: bin/keelson bin/keelson-kube bin/kubectl machines node s3server
	@hack/require.sh gcc qemu-system-x86_64 qemu-img /usr/share/OVMF/OVMF_CODE_4M.fd runc iptables nft systemd-analyze ssh curl pkill
	@hack/require.sh chromium-headless-shell node npm || echo "Without Chromium and npm the tests of the console's page are skipped; all else works." >&2
	if command -v npm >/dev/null; then cd console && npm ci --silent --ignore-scripts >&2; fi # axe-core, for tests in Chromium
	@hack/promtool.sh bin/promtool || echo "Without promtool the tests of the alerts are skipped; all else works." >&2

.PHONY: test
test: test-go test-modules test-page ## Run the tests with the race detector against one API server (ARGS: flags of go test)

.PHONY: test-go
test-go: test-needs
	$(GO_TEST) -skip '^($(SLOW))' $(ARGS) $(LONGEST) ./...

# hack/release has no goroutines, and compressing takes ten times as long with the race detector.
.PHONY: test-modules test-guest test-node test-release test-harness
test-modules: test-guest test-node test-release test-harness
test-guest:
	cd guest && $(RACE_TEST) $(ARGS) ./...
test-node:
	cd node && $(NODE_BUILD) go test $(ARGS) ./...
test-release:
	cd hack/release && go test $(ARGS) ./...
test-harness:
	cd bench && $(BENCH_TEST) -skip '^($(SLOW))' $(ARGS) ./...

.PHONY: test-page
test-page: test-needs
	if command -v npm >/dev/null; then cd console && npm test --silent >&2; fi

# The slow tests of internal/cron have no goroutines, and take many times as long with the race detector.
.PHONY: test-all
test-all: test-needs ## Run the slow tests, which make test omits (AREA: folder whose tests to run, such as node or qemu; ARGS: flags of go test)
	$(if $(call in_area,$(LONG_PACKAGES) ./internal/cron),,$(error no package in AREA=$(AREA) has slow tests))
	$(if $(call in_area,$(LONG_PACKAGES)),$(GO_TEST) -run '^($(SLOW))' $(ARGS) $(call in_area,$(LONG_PACKAGES)))
	$(if $(call in_area,./internal/cron),go test -vet=off -run '^TestLong' $(ARGS) ./internal/cron)

# Those whose names begin with TestSmoke, and each benchmark with few objects. test/install runs those of test/e2e, with a manager that has
# the permissions of an installation.
.PHONY: smoke smoke-go smoke-bench
smoke: smoke-go smoke-bench ## Run the slow tests that CI runs: real nodes, machines in Pods, Clusters, an installation, benchmarks (ARGS: flags of go test)
smoke-go: test-needs
	$(GO_TEST) -run '^TestSmoke' $(ARGS) $(filter-out ./test/e2e,$(call packages_with,TestSmoke))
smoke-bench: test-needs
	cd bench && $(BENCH_TEST) -run '^TestSmoke' $(ARGS) ./...

.PHONY: test-bench
test-bench: smoke-bench ## Run each benchmark with few objects (ARGS: flags of go test)

# For hack/citest, which repeats a failed test.
.PHONY: again
again:
	@$(if $(filter $(MODULE)/guest%,$(PACKAGE)),cd guest && $(RACE_TEST), \
	$(if $(filter $(MODULE)/node%,$(PACKAGE)),cd node && $(NODE_BUILD) go test, \
	$(if $(filter $(MODULE)/hack/release%,$(PACKAGE)),cd hack/release && go test, \
	$(if $(filter $(MODULE)/bench%,$(PACKAGE)),cd bench && $(BENCH_TEST),$(GO_TEST))))) -json -count 1 $(FLAGS) $(PACKAGE)

N ?= 20
.PHONY: flakes
flakes: test-needs ## Run the tests of a package many times beside a busy host, and count failures (PACKAGE=./internal/x N=20 ARGS: flags of go test)
	hack/flakes.sh $(N) env $(GO_TEST) -count 1 $(or $(ARGS),-skip '^($(SLOW))') $(or $(PACKAGE),$(error name a package: make flakes PACKAGE=./internal/x))

# Every folder of bench/ with a main.go is one benchmark: bench/foo is bench-foo.
BENCHES := $(patsubst bench/%/main.go,bench-%,$(wildcard bench/*/main.go))

.PHONY: bench $(BENCHES)
bench: $(BENCHES) ## Run all benchmarks; bench-NAME runs one, such as bench-foo (ARGS: its flags)
$(BENCHES): bench-%: build
	go -C bench build -o ../bin/bench/$* ./$*
	bin/bench/$* $(ARGS)
bench-vm: guest

# Soak tests are test files with the build tag soak. One package at a time: some judge what is late. The race detector would take processor
# time from the programs under test.
SOAK_PACKAGES = $(addprefix ./,$(sort $(dir $(shell git grep -l --untracked '^//go:build soak$$' -- '*_test.go'))))

.PHONY: soak
soak: build test-needs ## Run the long fault tests (KEELSON_SOAK=short: shortened)
	$(if $(SOAK_PACKAGES),,$(error There are no soak tests: no test file has the build tag soak))
	go run ./internal/testing/env/run -- go test -vet=off -tags soak -run '^TestSoak' -count 1 -p 1 -timeout 0 $(ARGS) $(SOAK_PACKAGES)

# It compiles a good part of Kubernetes once more, in other versions: minutes, which CI does not have.
.PHONY: certmanager
certmanager: build ## Test the chart with cert-manager (minutes the first time)
	cd test/install/certmanager && go build -ldflags '-s -w' -o ../../../bin/certmanager .
	go run ./internal/testing/env/run -- go test -tags certmanager -run '^TestCertManager$$' -count 1 $(ARGS) ./test/install

# It compiles a good part of Kubernetes once more, too.
.PHONY: kueue
kueue: build node ## Test CronTabs with Kueue on a real node (minutes the first time)
	mkdir -p $(BIN)/kueue
	cd test/e2e/node/kueue && go build -ldflags '-s -w' -o ../../../../$(BIN)/kueue/manager sigs.k8s.io/kueue/cmd/kueue
	$(BIN)/kubectl kustomize "$$(cd test/e2e/node/kueue && go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/default" > $(BIN)/kueue.yaml
	go run ./internal/testing/env/run -- go test -tags kueue -run '^TestKueue$$' -count 1 $(ARGS) ./test/e2e/node

# The other Kubernetes versions are those of kube/go.v*.mod. Building one takes minutes, which CI may not have.
OTHER_KUBES = $(addprefix $(BIN)/keelson-kube-,$(shell awk '$$1 == "k8s.io/kubernetes" && $$2 ~ /^v/ { print $$2 }' kube/go.v*.mod))

.PHONY: test-versions
test-versions: build node $(OTHER_KUBES) ## Test upgrades between Kubernetes versions, and rehearsals (10 minutes the first time)
	@hack/require.sh gcc runc iptables nft
	go run ./internal/testing/env/run -- $(RACE_TEST) -tags versions -run '^TestVersions' -count 1 -timeout 30m $(ARGS) ./test/e2e/node

# Both images are FROM scratch around static programs that are built here; nothing is pulled.
IMAGE ?= keelson:$(subst +,-,$(VERSION))
KUBE_IMAGE ?= keelson-kube:$(KUBE_DEFAULT)

.PHONY: image
image: bin/keelson bin/keelson-kube ## Build the images of the manager (IMAGE=NAME:TAG) and of the components (KUBE_IMAGE=NAME:TAG)
	hack/image.sh $(IMAGE) Dockerfile keelson
	hack/image.sh $(KUBE_IMAGE) Dockerfile.kube keelson-kube

LAUNCHER_IMAGE ?= keelson-launcher:$(subst +,-,$(VERSION))
GUEST_IMAGE ?= keelson-guest:$(subst +,-,$(VERSION))

.PHONY: launcher-image
launcher-image: launcher guest ## Build the images of the driver pod (LAUNCHER_IMAGE=NAME:TAG GUEST_IMAGE=NAME:TAG)
	$(or $(DOCKER),docker) build --tag $(LAUNCHER_IMAGE) --file Dockerfile.files bin/launcher
	$(or $(DOCKER),docker) build --tag $(GUEST_IMAGE) --file Dockerfile.files bin/guest

.PHONY: dist
dist: bin/kubectl ## Write dist/install.yaml, all manifests of an installation in a cluster (IMAGE=NAME:TAG)
	hack/dist.sh $(IMAGE)

.PHONY: release
release: ## Build a release into dist/VERSION: programs, images, chart, checksums (VERSION=v1.2.3, IMAGE=registry/keelson)
	hack/release.sh "$(VERSION)" "$(if $(filter command line environment,$(origin IMAGE)),$(IMAGE))"

.PHONY: generate
generate: ## Regenerate deepcopy functions, CRDs, roles, clients and docs/reference
	hack/generate.sh

# The built page is in the repository, so that make build needs no Node.
.PHONY: console
console: ## Build the page of keelson console into internal/console/dist (needs Node and npm)
	@hack/require.sh node npm
	cd console && npm ci --silent --ignore-scripts && npm run --silent check && npm run --silent build

# The images are those of a real instance, with machines that boot. Look at each before a commit.
.PHONY: screenshots
screenshots: build guest ## Take the screenshots of the console in docs/images again (needs Chromium and QEMU; minutes)
	@hack/require.sh chromium-headless-shell qemu-system-x86_64
	rm -f docs/images/console-*
	KEELSON_SCREENSHOTS=$(CURDIR)/docs/images go test -count=1 -run '^TestLongAccessConsolePages$$' ./test/e2e

# The schedules that the tests of internal/cron compare with, see hack/cronvectors. The
# libraries are pinned by its lock file; the time zones are those of Node.
.PHONY: cronvectors
cronvectors: ## Regenerate the test data of internal/cron from other cron libraries (needs Node and npm; minutes)
	@hack/require.sh node npm
	cd hack/cronvectors && npm ci --silent --ignore-scripts && node generate.js

.PHONY: verify
verify: ## Check that generated files are fresh, modules tidy, code formatted and imports allowed
	hack/verify.sh

.PHONY: lint
lint: ## Run the linters, after a test of their rules
	hack/lint-selftest.sh
	$(LINT) golangci-lint run ./...
	cd guest && "$$(cd .. && $(LINT) -n golangci-lint)" run --config ../.golangci.yml ./...
	cd bench && "$$(cd .. && $(LINT) -n golangci-lint)" run --config ../.golangci.yml ./...
	cd hack/release && "$$(cd ../.. && $(LINT) -n golangci-lint)" run --config ../../.golangci.yml ./...
	cd node && tool="$$(cd .. && $(LINT) -n golangci-lint)" && $(NODE_BUILD) "$$tool" run --config ../.golangci.yml --build-tags $(NODE_TAGS) ./...

# Grafana has no schema of its dashboards for programs; its types are one for a compiler.
.PHONY: dashboard
dashboard: ## Check the dashboard against the types of Grafana (needs Node and npm)
	@hack/require.sh node npm
	cd hack/dashboard && npm ci --silent --ignore-scripts && node check.mjs

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in reachable code (needs the network)
	hack/vulncheck.sh

.PHONY: clean
clean: ## Remove build outputs
	rm -rf bin dist
