# csi-mpath: `make` prints what there is to do. HACKING.md says more.
include versions.mk

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN       := $(CURDIR)/bin
OUT       := $(CURDIR)/out
GO        := go
LINT      := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS   := -X main.version=$(VERSION)
FUZZTIME  ?= 10s
DURATION  ?= 5m
SEED      ?= 1
COUNT     ?= 200
TIMES     ?= 4
VOLUMES   ?= 1000
PKG       ?= ./...

export CGO_ENABLED ?= 0

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ every day

.PHONY: setup
setup: ## install what the tests need: Debian packages (as root) and Go modules; quick when all is there
	@test/setup.sh $(DEMO_PACKAGES) $(TEST_PACKAGES)
	@test/retry.sh $(GO) mod download

.PHONY: setup-tgt
setup-tgt:
	@test/setup.sh $(DEMO_PACKAGES)

.PHONY: build
build: ## build bin/csi-mpath
	@$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/csi-mpath ./cmd/csi-mpath

.PHONY: generate
generate: ## write the code of .proto files again (committed; needs only Go)
	@$(GO) generate ./pkg/...

.PHONY: demo
demo: $(if $(filter tgt,$(TARGET)),setup-tgt) build ## a volume over iSCSI and one over NVMe/TCP, faults under load, every byte checked: half a minute; TARGET=tgt (root): iSCSI over Debian's tgt, and fio
	@$(GO) run ./test/demo --bin $(BIN)/csi-mpath --target $(or $(TARGET),own)

.PHONY: test
test: ## unit tests, golden files and fuzz corpora: no root, no network, under 3 minutes
	@$(GO) test -shuffle=on -timeout 20m $(PKG)

.PHONY: check
check: $(LINT) ## gofmt, vet, lint, house rules and allowed imports, go.mod tidy and verified
	@bad=$$(gofmt -l cmd pkg test); if [ -n "$$bad" ]; then echo "not gofmt-ed (run gofmt -w):"; echo "$$bad"; exit 1; fi
	@$(GO) vet ./...
	@$(GO) vet -tags interop,vm,vmhost,e2e ./test/...
	@GOARCH=arm64 $(GO) vet ./cmd/... ./pkg/...
	@$(GO) mod tidy -diff
	@$(GO) mod verify
	@$(GO) test -count=1 ./pkg/archtest
	@$(LINT) run

$(LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION) (once, a few minutes)"
	@mkdir -p $(BIN)/lint.tmp
	@GOBIN=$(BIN)/lint.tmp GOFLAGS= test/retry.sh $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/lint.tmp/golangci-lint $@ && rmdir $(BIN)/lint.tmp

##@ deeper

.PHONY: race
race: ## unit tests under the race detector (needs gcc)
	@CGO_ENABLED=1 $(GO) test -race -timeout 20m $(PKG)

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME (10s) each
	@test/fuzz.sh $(FUZZTIME)

.PHONY: sim
sim: ## the whole engine in virtual time under random faults: SEED=1 COUNT=200 TRANSPORT=iscsi|nvme-tcp (both), or SCRIPT=file; a seed that fails prints its smallest script
	@$(GO) test -c -o $(BIN)/sim.test ./pkg/sim
	@$(BIN)/sim.test -test.run '^TestSeeds$$' -test.timeout 0 $(if $(SCRIPT),-sim.script '$(SCRIPT)' -sim.times $(TIMES),-sim.seed $(SEED) -sim.count $(COUNT) $(if $(TRANSPORT),-sim.transport $(TRANSPORT)))

.PHONY: mutate
mutate: ## known bugs put into a copy of the source, one at a time: the simulator must find each; BUG=words for some
	@$(GO) run ./test/mutate $(if $(BUG),-run '$(BUG)')

.PHONY: interop
interop: setup build ## our initiator and server against programs we did not write: tgt, fio (root)
	@CSI_MPATH_BIN=$(BIN)/csi-mpath $(GO) test -tags interop -count=1 -timeout 15m \
		$$(grep -rl --include='*_test.go' '^//go:build interop' pkg test | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: soak
soak: setup-tgt build ## fio with crc32c verify under random path faults: DURATION=5m SEED=1 TRANSPORT=iscsi|nvme-tcp; table and out/soak.json
	@mkdir -p $(OUT)
	@$(GO) run ./test/soak --bin $(BIN)/csi-mpath --duration $(DURATION) --seed $(SEED) $(if $(TRANSPORT),--transport $(TRANSPORT)) --json $(OUT)/soak.json

.PHONY: scale
scale: ## VOLUMES=1000 volumes x 2 paths in one process: memory, idle CPU, all paths back after a shared portal; out/scale.json
	@mkdir -p $(OUT)
	@$(GO) build -o $(BIN)/scale ./test/scale
	@$(BIN)/scale --volumes $(VOLUMES) --json $(OUT)/scale.json

.PHONY: provision
provision: build ## VOLUMES=1000 volumes through an agent by 50 callers, and all of them again after kill -9; out/provision.json
	@mkdir -p $(OUT)
	@$(GO) build -o $(BIN)/provision ./test/provision
	@$(BIN)/provision --bin $(BIN)/csi-mpath --volumes $(VOLUMES) --json $(OUT)/provision.json

.PHONY: bench-peers
bench-peers: build ## against nbdkit, qemu and libiscsi, in interleaved rounds (root, most of an hour): SUITES=target,initiator,nbd,iscsi,protocols,paths,merge0,merge10us JSON=FILE
	@test/setup.sh $(DEMO_PACKAGES) $(BENCH_PACKAGES)
	@$(GO) build -o $(BIN)/bench ./test/bench
	@$(BIN)/bench --bin $(BIN)/csi-mpath $(if $(SUITES),--suites $(SUITES)) $(if $(JSON),--json $(JSON))

.PHONY: bench-seeds
bench-seeds: build ## the five founding ideas, each against the design it replaced (no root, 12 minutes): JSON=FILE, PLOT=DIR
	@$(if $(PLOT),mkdir -p $(PLOT);) $(BIN)/csi-mpath bench seeds $(if $(PLOT),--plot $(PLOT)) $(if $(JSON),--json >$(JSON))

.PHONY: setup-vm
setup-vm:
	@test/setup.sh $(VM_PACKAGES)

# Packages of VM tests, or the one named by VM: product, reclaim, initiator, fabrics, storage.
VM_PKGS := $(if $(VM),./test/vm/$(VM),$$(grep -rl --include='*_test.go' '^//go:build vm$$' test/vm | xargs -n1 dirname | sort -u | sed 's,^,./,'))

# The kernel modules that every package of VM tests finds loaded.
VM_MODS := nbd:nbds_max=16,ext4,xfs
VM_RUN  := $(BIN)/vmrun -k $(KERNEL) -m 2048 -mods $(VM_MODS) -logdir $(OUT)/vm

# One of each kind: the machine itself, the kernel's client, kills under load,
# the stale-write story across a restart, dm-multipath over our target,
# NVMe/TCP in both directions, and evictions at the kernel's targets.
VM_SMOKE := TestWeAreRoot|TestTheKernelIsThe|TestTheNbdModule|TestADeviceIsSetUp|TestWhatADeadServerHeld|TestAWrongBackend|TestAKilledWorkerLosesNothing|TestANewerWriteWins|TestMultipathShowsTwoPriorityGroups|TestTwoPortsAreOneDevice|TestNoWriteOfAnEvictedNodeLands|TestTakingAccessAwayAloneIsNoFence|TestNodesDoNotNoticeThatTheAgentRestarts

.PHONY: vm-smoke
vm-smoke: ## the part of vm-test that CI runs: three kills under load on each of raw, ext4 and xfs, and the stale-write story
	@$(MAKE) --no-print-directory vm-test RUN='$(VM_SMOKE)'

.PHONY: vm-test
vm-test: setup-vm build ## a real kernel under QEMU: KERNEL=6.12 (or 6.1) VM=package RUN=TestName; LONG=1 for the long counts; kernel logs in out/vm
	@$(GO) build -trimpath -o $(BIN)/ ./test/vm/vmrun ./test/vm/vminit
	@$(BIN)/vmrun -k $(KERNEL) -fetch
	@$(if $(RUN)$(VM),,CSI_MPATH_VM_KERNEL=$(KERNEL) CSI_MPATH_VMRUN=$(BIN)/vmrun $(GO) test -tags vmhost -count=1 -timeout 15m ./test/vm/vmrun)
	@CSI_MPATH_BIN=$(BIN)/csi-mpath CSI_MPATH_LONG=$(LONG) CSI_MPATH_KILLS=$(KILLS) \
		$(GO) test -tags vm -count=1 -p 1 -timeout $(if $(LONG),150m,30m) -exec '$(VM_RUN)' $(if $(RUN)$(VM)$(LONG),-v) $(if $(RUN),-run '$(RUN)') $(VM_PKGS)

# The programs of a Kubernetes cluster, from one module, in one build: a quarter of an
# hour the first time, seconds afterwards. The version is what they say of themselves.
E2E_BIN := $(BIN)/e2e
E2E_VERSION := -X k8s.io/component-base/version.gitVersion=v$(KUBERNETES_VERSION) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))

.PHONY: e2e-tools
e2e-tools:
	@test/setup.sh $(E2E_PACKAGES)
	@mkdir -p $(E2E_BIN)
	@cd test/e2e/tools && ../../retry.sh $(GO) mod download
	@cd test/e2e/tools && $(GO) build -trimpath -ldflags "-s -w $(E2E_VERSION)" -o $(E2E_BIN)/ tool
	@ln -sf server $(E2E_BIN)/etcd
	@rm -rf $(E2E_BIN)/crd && cp -r "$$(cd test/e2e/tools && $(GO) list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd" $(E2E_BIN)/crd && chmod -R u+w $(E2E_BIN)/crd
	@$(GO) build -o $(E2E_BIN)/ ./test/e2e/sandbox ./test/e2e/pod

.PHONY: e2e
e2e: e2e-tools build image ## a real Kubernetes on this machine, two nodes, the chart, and what happens to volumes (root): RUN=TestName; what people see in out/e2e
	@rm -rf $(OUT)/e2e && mkdir -p $(OUT)/e2e
	@$(GO) test -tags e2e -c -o $(E2E_BIN)/e2e.test ./test/e2e
	@dir=$$(mktemp -d /tmp/mp-e2e-XXXX) && E2E_DIR=$$dir E2E_BIN=$(E2E_BIN) E2E_OUT=$(OUT)/e2e E2E_IMAGE=$(OUT)/csi-mpath-image.tar E2E_CHART=$(CURDIR)/charts/csi-mpath CSI_MPATH_BIN=$(BIN)/csi-mpath \
		$(E2E_BIN)/sandbox -net -tmpfs /run -clean $$dir -- $(E2E_BIN)/e2e.test -test.v -test.failfast -test.timeout 20m $(if $(RUN),-test.run '$(RUN)')

.PHONY: full
full: ## every ring in series with the long counts: hours, as root, on a quiet machine
	@$(MAKE) --no-print-directory check test race interop
	@$(MAKE) --no-print-directory sim COUNT=2000
	@$(MAKE) --no-print-directory mutate
	@$(MAKE) --no-print-directory fuzz FUZZTIME=60s
	@$(MAKE) --no-print-directory soak scale
	@$(MAKE) --no-print-directory vm-test LONG=1
	@$(MAKE) --no-print-directory vm-test KERNEL=6.1
	@$(MAKE) --no-print-directory bench-seeds bench-peers

##@ what ships

IMAGE  ?= localhost/csi-mpath:e2e
ARCHES ?= $(shell $(GO) env GOARCH)
comma  := ,
empty  :=

.PHONY: image
image: ## container image without a container engine, as out/csi-mpath-image.tar for ctr, docker, podman and skopeo: IMAGE=name:tag ARCHES="amd64 arm64"
	@mkdir -p $(OUT)/image
	@for a in $(ARCHES); do GOARCH=$$a $(GO) build -trimpath -ldflags '-s -w $(LDFLAGS)' -o $(OUT)/image/csi-mpath-$$a ./cmd/csi-mpath; done
	@cd test/release && $(GO) run ./image --arch $(subst $(empty) $(empty),$(comma),$(strip $(ARCHES))) --bin $(OUT)/image/csi-mpath-ARCH \
		--name $(IMAGE) --version $(VERSION) --work $(OUT)/image --out $(OUT)/csi-mpath-image.tar $(if $(filter 0,$(shell id -u)),--check)

.PHONY: chart
chart: ## the Helm chart's golden renderings and deploy/csi-mpath.yaml, written again; look at the difference
	@cp deploy/crd/*.yaml charts/csi-mpath/files/
	@cd test/release && $(GO) test -count=1 ./chart -update

.PHONY: docs
docs: ## tables in docs that say what the code has: tunables, metrics, error codes
	@$(GO) test -count=1 ./test/reference -update

.PHONY: chart-check
chart-check: ## the chart: helm lint, refused values, golden renderings, deploy/ fresh
	@cd test/release && ../retry.sh $(GO) list -deps -test ./... >/dev/null
	@cd test/release && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: clean
clean: ## remove bin and out
	@rm -rf $(BIN) $(OUT)
