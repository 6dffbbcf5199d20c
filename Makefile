# The first run builds a real Kubernetes into bin/castle-lab; later ones take seconds.
SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
GO         := 1.26.6
KUBERNETES := 1.36.3
PROXMOX_VERSION := 0.111.1
PROXMOX    := bin/terraform-provider-proxmox_v$(PROXMOX_VERSION)
HCLOUD_VERSION := 1.68.0
HCLOUD     := bin/terraform-provider-hcloud_v$(HCLOUD_VERSION)

# The versions that a Kubernetes server reports come from the linker.
component  := k8s.io/component-base/version
kube_flags := -X $(component).gitVersion=v$(KUBERNETES) -X $(component).gitMajor=1 -X $(component).gitMinor=36 -X $(component).gitTreeState=clean

# Rehearsals and tests bring their own Terraform settings.
unexport TF_CLI_CONFIG_FILE
export GOTOOLCHAIN ?= local
export CGO_ENABLED ?= 0
# The same for every command, or each would compile Kubernetes for itself. Without DWARF, which -s removes
# anyway, the compiler needs 8 % less time. With grpc's pages for debugging, which are templates, the linker would
# keep every method of every type.
tags := grpcnotrace
export GOFLAGS := -trimpath -buildvcs=false -gcflags=all=-dwarf=false -tags=$(tags)

# The tests that need real Terraform, and their packages: the others beside them have run before.
integrated  := $(shell grep -rl --include='*_test.go' '^//go:build integration' ./cmd ./internal ./stages)
# These only repeat: the soaks run them, in test-long. It runs those of rare too: one minute or more each, of things
# of which make test, which has to end within half an hour on two processors, has a test that is shorter.
kills       := TestSoakLost|TestRolloutKills|TestRestoreKills|TestPhoenixKills
rare        := TestOpenTofu|TestRollout|TestRotation|TestRotationKilled|TestTalosctl|TestBoth|TestSources|TestDrift
rare        := $(rare)|TestCilium|TestProxmoxHands|TestTemplatesElsewhere|TestUseless|TestLanding
rare        := $(rare)|TestPipeline|TestLabHardware|TestLabPlanted|TestLabTalos|TestLabEdit
rare        := $(rare)|TestLabGolden|TestLabTailscale|TestLabStorage|TestLabCSI|TestLabFluxHandover
rare        := $(rare)|TestPhoenixAway|TestPhoenixIncomplete|TestLabBlocked|TestLabDead|TestLabLost
rare        := $(rare)|TestLabFluxTazlab|TestLabFluxCLI|TestLabFleet|TestLabAddresses|TestLabWarm|TestLabOlder|TestLabLeaving
rare        := $(rare)|TestLabReplicas|TestLabFailed|TestLabHeals|TestLabKills|TestLabEverything|TestLabTaken
rare        := $(rare)|TestLabCharts|TestLabLease|TestLabRemoteBase
integration := $(shell grep -ho '^func Test[A-Za-z0-9]*' $(integrated) | cut -d' ' -f2 | \
	grep -vxE '$(kills)|$(rare)' | paste -sd'|')
# The fuzz targets, as folder:name, and how long each is fuzzed: all together ten minutes on every processor.
fuzzed      := $(shell grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' ./internal | sed -E 's|/[^/]*:func |:|' | sort)
FUZZ_TIME   ?= $(shell echo $$((600 * $$(nproc) / $(words $(fuzzed)))))s
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# $(call say,WHAT): one line before something that takes a while.
say = @echo "==> $(1)"
# $(call install,COMMAND-OR-FILE:PACKAGE …): those that this machine lacks.
define install
	@missing=(); \
	for pair in $(1); do \
	  command -v "$${pair%%:*}" >/dev/null || compgen -G "$${pair%%:*}" >/dev/null || missing+=("$${pair##*:}"); \
	done; \
	if (( $${#missing[@]} )); then \
	  echo "==> installing $${missing[*]} with apt"; \
	  sudo=; (( EUID == 0 )) || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq "$${missing[@]}"; \
	fi
endef

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: build ## Create and destroy the five-node cluster blue in the lab on this machine
	$(call say,rehearsing blue: create$(,) status$(,) create again$(,) destroy (about a minute))
	bin/castle rehearse blue

.PHONY: env
env: ## Print what the go command needs here; run eval "$(make -s env)" in your shell
	@echo 'export CGO_ENABLED=$(CGO_ENABLED) GOTOOLCHAIN=$(GOTOOLCHAIN) GOFLAGS="$(GOFLAGS)"'

.PHONY: build
build: tools ## Build castle, its lab and the providers for it into bin/
	$(call say,building castle (half a minute the first time))
	go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/castle ./cmd/castle
	$(call say,building the Terraform provider bpg/proxmox from its source (a minute or two the first time))
	cd lab/bpg && go build -ldflags '-s -w -X main.version=$(PROXMOX_VERSION)' -o ../../$(PROXMOX) github.com/bpg/terraform-provider-proxmox
	$(call say,building the Terraform provider hetznercloud/hcloud from its source (half a minute the first time))
	cd lab/hcloud && go build -ldflags '-s -w -X github.com/hetznercloud/terraform-provider-hcloud/hcloud.Version=$(HCLOUD_VERSION)' -o ../../$(HCLOUD) github.com/hetznercloud/terraform-provider-hcloud
	$(call say,building the lab with a real Kubernetes$(,) and the stand-in providers (five minutes the first time))
	cd lab && go build -ldflags '-s -w $(kube_flags)' -o ../bin/ ./cmd/lab-providers ./cmd/castle-lab

flux = source-controller kustomize-controller helm-controller
.PHONY: real
real: tools ## Build the real controllers of Flux and MetalLB, which rehearsals then run instead of the lab's doubles
	$(call say,building Flux's and MetalLB's controllers from their source (ten minutes on two processors the first time))
	mkdir -p bin/controllers
	cd lab/flux && go build -ldflags '-s -w' -o ../../bin/controllers/ $(flux:%=github.com/fluxcd/%)
	cd lab/metallb && go build -ldflags '-s -w' -o ../../bin/controllers/metallb-controller go.universe.tf/metallb/controller
	cd lab/flux && for c in $(flux); do \
	  tail -n +1 -q "$$(go list -m -f '{{.Dir}}' github.com/fluxcd/$$c)"/config/crd/bases/*.yaml; done > ../../bin/controllers/flux2.yaml
	cd lab/metallb && cat "$$(go list -m -f '{{.Dir}}' go.universe.tf/metallb)"/charts/metallb/charts/crds/templates/crds.yaml \
	  > ../../bin/controllers/metallb.yaml

.PHONY: vault
vault: tools ## Build a real Vault for the lab and install PostgreSQL, for clusters that use them
	$(call install,/usr/lib/postgresql/*/bin/postgres:postgresql pgbackrest:pgbackrest)
	$(call say,building a real Vault for the lab (two minutes the first time))
	cd lab/vault && go build -ldflags '-s -w' -o ../../bin/lab-vault .

.PHONY: talosctl
talosctl: tools ## Build the real talosctl, for the test that runs it in the lab
	$(call say,building talosctl (three minutes on two processors the first time))
	cd lab/talosctl && go build -ldflags '-s -w' -o ../../bin/talosctl github.com/siderolabs/talos/cmd/talosctl

flux2 = github.com/fluxcd/flux2/v2
.PHONY: flux
flux: tools ## Build the real command line of Flux, for the test that runs it in the lab
	$(call say,building flux (five minutes on two processors the first time))
	@# It embeds manifests that its module lacks, and go build -overlay adds nothing to the cache of modules: a copy.
	cd lab/fluxcli && go mod download $(flux2) && copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	  cp -r --no-preserve=mode "$$(go list -m -f '{{.Dir}}' $(flux2))/." "$$copy" && \
	  mkdir "$$copy/cmd/flux/manifests" && echo '# none' > "$$copy/cmd/flux/manifests/none.yaml" && \
	  version=$$(go list -m -f '{{.Version}}' $(flux2)) && \
	  go build -C "$$copy" -ldflags "-s -w -X main.VERSION=$${version#v}" -o '$(CURDIR)/bin/flux' ./cmd/flux

.PHONY: s3
s3: tools ## Build a real S3 server and install PostgreSQL and pgBackRest, for shared state and for backups
	$(call install,/usr/lib/postgresql/*/bin/postgres:postgresql pgbackrest:pgbackrest)
	$(call say,building an S3 server (a minute the first time))
	cd lab/s3 && go build -ldflags '-s -w' -o ../../bin/lab-s3 .

.PHONY: tofu
tofu: tools ## Build OpenTofu, for the rehearsal with it
	$(call say,building OpenTofu (two to four minutes the first time))
	cd lab/tofu && go build -ldflags '-s -w -X github.com/opentofu/opentofu/version.dev=no' -o ../../bin/ github.com/opentofu/opentofu/cmd/tofu

.PHONY: browser
browser: tools ## Install Chromium, for the test of the page that castle report writes
	$(call install,chromium:chromium)

.PHONY: shells
shells: tools ## Install zsh, fish and bash-completion, for the tests of castle's completion
	$(call install,zsh:zsh fish:fish /usr/share/bash-completion/bash_completion:bash-completion)

# With cgo, the linker would call gcc for what imports plugin, as kustomize does, and need half as long again. A larger
# heap spares the garbage collector a sixth of the time. Every test binary would sleep for a second before it ends.
race := GORACE=atexit_sleep_ms=20 GOGC=400 CGO_ENABLED=1 go test -race -ldflags -linkmode=internal

.PHONY: race
race: tools ## Run the scripts of the command line with the race detector (twenty minutes)
	$(race) -timeout 60m ./cmd/castle

# What works with either program, with OpenTofu. TestOpenTofu and make integration TERRAFORM=tofu run more.
either := TestTerraform|TestProviders

.PHONY: test
test: export CASTLE_TEST_SHELLS := 1 # the tests of completion fail where they would be skipped
test: check build vault s3 browser shells tofu ## Check the code, and run what every commit has to pass: unit, command line, real Terraform, the lab, and a rehearsal of blue
	$(call say,unit tests with the race detector$(,) and the command line (minutes the first time))
	@# The scripts start castle thousands of times, each of them several times slower with it: make race does that.
	$(race) -timeout 30m $$(go list ./... | grep -v '/cmd/castle$$')
	GOGC=400 go test -timeout 30m ./cmd/castle ./internal/check
	$(MAKE) integration
	$(call say,a part of them with OpenTofu)
	CASTLE_TERRAFORM=tofu PATH="$(CURDIR)/bin:$$PATH" go test -timeout 20m -tags $(tags),integration -run '^($(either))$$' ./cmd/castle
	$(call say,how soon gates open$(,) alone because it is measured; then the other tests of the lab)
	cd lab && go test ./gates && go test ./...
	$(call say,rehearsing blue)
	bin/castle rehearse blue

.PHONY: test-long
test-long: ## What make test leaves out: packages, fuzzing, races of the scripts, long rehearsals, the soaks (four hours)
	$(MAKE) release-test
	$(MAKE) fuzz
	$(MAKE) race
	$(MAKE) rehearsals
	$(MAKE) integration TERRAFORM=tofu
	$(MAKE) soak
	$(MAKE) soak CASTLE_SOAK_LOSE=1
	$(MAKE) soak-rollout
	$(MAKE) soak-restore
	$(MAKE) soak-phoenix

# The tools of a release, in a module of their own. Without a clone's remote, goreleaser ignores the commit. One thing at a
# time: an archive has its programs in the order in which their builds end, which would differ.
goreleaser = GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url \
	GIT_CONFIG_VALUE_0=https://github.com/ephemeral-castle/castle.git \
	KUBE_FLAGS='$(kube_flags)' PROXMOX_VERSION=$(PROXMOX_VERSION) HCLOUD_VERSION=$(HCLOUD_VERSION) \
	HOMEBREW_TAP_TOKEN=$${HOMEBREW_TAP_TOKEN-} \
	go tool -modfile=release/go.mod goreleaser

.PHONY: release-snapshot
release-snapshot: tools ## Build all files of a release into dist/ (half an hour the first time; ONLY=linux_amd64: one platform)
	$(call say,building the tools$(,) and castle and its lab for each platform)
	mkdir -p bin
	sed -E '$(if $(ONLY),s/(targets: ).*/\1[$(ONLY)]/)' .goreleaser.yaml > bin/goreleaser.yaml
	@# At a tag, with nothing changed, these are the files of the release: the version is in names and programs.
	snapshot=--snapshot; \
	if git describe --tags --exact-match --match 'v[0-9]*' HEAD >/dev/null 2>&1 && [[ -z "$$(git status --porcelain)" ]]; then \
	  snapshot=; \
	fi; \
	$(goreleaser) release --config bin/goreleaser.yaml --clean --parallelism 1 $$snapshot --skip=publish,announce,docker,sign
	$(if $(ONLY),,release/platforms.sh && release/cask.sh)

.PHONY: release
release: tools # Publish the release of the tag: .github/workflows/release.yml.
	$(goreleaser) release --clean --parallelism 1

.PHONY: release-check
release-check: tools ## Check the configuration of releases and their workflow
	cd release && go mod tidy -diff && go vet ./... && go test ./... && go run $(STATICCHECK) -checks all ./...
	go tool -modfile=release/go.mod actionlint .github/workflows/*.yml
	$(goreleaser) check

.PHONY: release-test
release-test: release-check ## Build packages twice and compare them, and rehearse with .deb and .rpm in a Debian without Go (fifteen minutes)
	$(call install,debootstrap:debootstrap buildah:buildah)
	$(call say,building the packages for linux/amd64 in two folders)
	release/reproducible.sh
	release/cask.sh
	$(call say,building the image on a base of this machine's programs)
	release/image.sh
	$(call say,installing the packages in a fresh Debian$(,) rehearsing mini$(,) and removing them)
	release/package.sh

.PHONY: fuzz
fuzz: ## Fuzz for ten minutes what castle reads (FUZZ_TIME=20s: each target for that long)
	$(call say,building the fuzz targets (minutes the first time: each package is built with counters))
	@for folder in $(sort $(foreach target,$(fuzzed),$(firstword $(subst :, ,$(target))))); do \
	  go test -c -fuzz . -o "bin/fuzz/$${folder##./internal/}.test" "$$folder"; \
	done
	$(call say,fuzzing $(words $(fuzzed)) targets$(,) each for $(FUZZ_TIME))
	@printf '%s\n' $(fuzzed) | FUZZ_TIME=$(FUZZ_TIME) xargs -P "$$(nproc)" -n 1 ./fuzz.sh

.PHONY: integration
integration: build vault s3 browser $(TERRAFORM) ## Run the tests that need real Terraform (TERRAFORM=tofu: with OpenTofu)
	$(call say,integration tests with real Terraform$(,) most of them in rehearsals)
	@# Three at a time keep two processors busy; more of them take longer for the same.
	@$(if $(TERRAFORM),CASTLE_TERRAFORM=$(TERRAFORM) PATH="$(CURDIR)/bin:$$PATH") \
	go test -timeout 60m -parallel 3 -tags $(tags),integration -run '^($(integration))$$' $(sort $(dir $(integrated)))
	cd lab && go test -tags $(tags),integration ./cmd/lab-providers ./internal/rehearsal

.PHONY: rehearsals
rehearsals: build vault s3 tofu talosctl flux real ## Run the long rehearsals: OpenTofu, talosctl, flux, the real controllers, whole rollouts, passwords, networks, hardware (an hour)
	$(call say,long rehearsals with real Terraform)
	@go test -timeout 120m -parallel 3 -tags $(tags),integration -run '^($(rare))$$' ./cmd/castle
	cd lab && go test -count 1 ./behaviours

.PHONY: soak
soak: build s3 ## Disturb castle 200 times while it creates and destroys a cluster in the lab (an hour; docs/lab.md has the settings; CASTLE_SOAK_LOSE=1: 40 times with its machine)
	$(call say,disturbing castle: every time the same command completes what it was at)
	CASTLE_SOAK_KILLS=$${CASTLE_SOAK_KILLS:-$(if $(CASTLE_SOAK_LOSE),40,200)} \
	CASTLE_SOAK_MODE=$${CASTLE_SOAK_MODE:-$(if $(CASTLE_SOAK_LOSE),kill$(,)kill$(,)other-machine$(,)store-mutation,kill$(,)kill$(,)syscall$(,)mutation$(,)second)} \
	go test -timeout 0 -count 1 -tags $(tags),integration -run '^TestSoak$(if $(CASTLE_SOAK_LOSE),Lost)$$' -v ./cmd/castle
	CASTLE_SOAK_HISTORIES=500 go test -count 1 -run '^TestLogIsLinearizable$$' ./internal/state/commits

.PHONY: soak-rollout
soak-rollout: build ## Kill castle 100 times while it changes the machines of a cluster in the lab (an hour; docs/lab.md has the settings)
	$(call say,killing castle: every time the same command completes the rollout)
	CASTLE_ROLLOUT_KILLS=$${CASTLE_ROLLOUT_KILLS:-100} \
	go test -timeout 0 -count 1 -tags $(tags),integration -run '^TestRolloutKills$$' -v ./cmd/castle

.PHONY: soak-restore
soak-restore: build ## Kill castle 50 times while it backs up and restores etcd of a cluster in the lab (fifteen minutes)
	$(call say,killing castle: every time the same command completes the backup or the restore)
	CASTLE_RESTORE_KILLS=$${CASTLE_RESTORE_KILLS:-50} \
	go test -timeout 0 -count 1 -tags $(tags),integration -run '^TestRestoreKills$$' -v ./cmd/castle

.PHONY: soak-phoenix
soak-phoenix: build ## Kill castle 60 times while it saves, destroys, recreates and restores the cluster tazlab in the lab (an hour)
	$(call say,killing castle: every time the same command completes it$(,) and no row is lost)
	CASTLE_PHOENIX_KILLS=$${CASTLE_PHOENIX_KILLS:-60} \
	go test -timeout 0 -count 1 -tags $(tags),integration -run '^TestPhoenixKills$$' -v ./cmd/castle

.PHONY: bench
bench: build terragrunt ## Measure castle beside plain Terraform and Terragrunt, and write bench/RESULTS.md (BENCH='-rounds 5')
	$(call say,measuring: nothing else should run on this machine meanwhile)
	go build -o bin/castle-bench ./bench
	bin/castle-bench $(BENCH)

.PHONY: bench-check
bench-check: build terragrunt ## Measure, and fail if castle is slower beside the others than bench/results.json records
	$(call say,measuring: nothing else should run on this machine meanwhile)
	go build -o bin/castle-bench ./bench
	bin/castle-bench -compare $(BENCH)

.PHONY: bench-replay
bench-replay: build vault s3 ## Compare castle with a script in the order of TazLab's create.sh, at real speed, into bench/REPLAY.md (half an hour)
	$(call say,creating blue and tazlab twice each$(,) and tazlab again with its data$(,) in the lab at the speed of real machines)
	go build -o bin/castle-replay ./bench/replay
	bin/castle-replay $(REPLAY)

.PHONY: terragrunt
terragrunt: tools # Build Terragrunt for the bench.
	$(call say,building Terragrunt (five minutes the first time))
	cd bench/terragrunt && go build -ldflags '-s -w' -o ../../bin/terragrunt github.com/gruntwork-io/terragrunt

.PHONY: golden
golden: ## Update the golden files of the command line, of castle check and of reports
	CASTLE_UPDATE_SCRIPTS=1 go test ./cmd/castle ./internal/event ./internal/check ./internal/report

.PHONY: docs
docs: ## Draw docs/blue.svg and docs/packages.md, generate docs/reference, and write the man pages into bin/man
	CASTLE_UPDATE_SCRIPTS=1 go test ./docs ./internal -run '^(TestReferenceIsGenerated|TestPackagesMdDrawsTheTable)$$'
	go run ./docs/man bin/man
	@empty=$$(mktemp -d) && trap 'rm -rf "$$empty"' EXIT && \
	go run ./cmd/castle graph blue -o svg --state-dir "$$empty" > "$$empty/blue.svg" && cp "$$empty/blue.svg" docs/blue.svg

.PHONY: pictures
pictures: build browser ## Draw the pictures of the documentation from rehearsals of mini, into docs/pictures (three minutes)
	docs/pictures/draw.sh

.PHONY: check
check: tools ## Check format, tidiness, vet, staticcheck and Terraform's format
	$(call say,format$(,) tidiness$(,) vet and staticcheck (minutes the first time))
	test -z "$$(gofmt -l bench cmd docs internal release stages templates lab)"
	go mod tidy -diff
	cd lab && go mod tidy -diff
	cd lab/vault && go vet ./...
	cd lab/s3 && go mod tidy -diff && go vet ./...
	@# vet: no file is left out with the tag integration. staticcheck: what only those tests use is unused without it.
	go vet -tags $(tags),integration ./...
	$(MAKE) darwin
	cd lab && go vet -tags $(tags),integration ./...
	go run $(STATICCHECK) -checks all ./... && go run $(STATICCHECK) -checks all -tags $(tags),integration ./...
	cd lab && go run $(STATICCHECK) -checks all ./...
	CHECKPOINT_DISABLE=1 terraform fmt -check -recursive stages clusters

# The tests of cmd/castle trace castle's system calls and make namespaces: they are Linux's.
#
# To compile all of the modules that castle requires takes seven minutes of computing, once for arm64. Each package has
# the same files for amd64, so vet finds the same in them. That they compile for amd64, gopackages sees in half a minute:
# it checks the types of castle, its tests and all that they import from their source, and generates no code.
mac         := ./docs/... ./internal/... ./stages/... ./templates/...
files       := '{{.ImportPath}} {{.GoFiles}} {{.TestGoFiles}} {{.XTestGoFiles}}'
GOPACKAGES  := golang.org/x/tools/go/packages/gopackages
.PHONY: darwin
darwin: # Vet castle and its unit tests for macOS.
	$(call say,vet for macOS (four minutes the first time$(,) then half a minute))
	GOOS=darwin GOARCH=arm64 go vet $(mac)
	GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/castle
	test "$$(GOOS=darwin GOARCH=amd64 go list -f $(files) ./...)" = "$$(GOOS=darwin GOARCH=arm64 go list -f $(files) ./...)"
	mkdir -p bin && go build -o bin/gopackages $(GOPACKAGES)
	@# It tells errors in its output alone.
	for what in '-test $(mac)' ./cmd/castle; do \
	  GOOS=darwin GOARCH=amd64 bin/gopackages -json -deps -tags $(tags) -mode allsyntax $$what > bin/darwin.json && \
	  grep -q '"ID": "github.com/ephemeral-castle/castle/internal/process"' bin/darwin.json && \
	  ! grep -A 6 '"Errors":' bin/darwin.json || exit 1; \
	done

.PHONY: tools
tools: # Install with apt what building and testing need and this machine lacks.
	@printf '%s\n' go$(GO) "$$(go env GOVERSION 2>/dev/null)" | sort -VC || \
	  { echo "castle and its lab are built with Go $(GO) or later: https://go.dev/dl/" >&2; exit 1; }
	$(call install,git:git gcc:gcc tmux:tmux strace:strace)

, := ,
