# kbridge. `make demo` shows it, `make test` tests it; both need Go alone and build
# what is missing. Where Java 17 and Maven are there, a real Kafka broker is tested too, and on Debian a real Prometheus. The first build of the test cluster's kube-apiserver takes about
# eleven minutes on two cores; it is kept in the user's cache folder.

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
CONTAINER_TOOL ?= docker
IMAGE ?= kbridge:$(VERSION)
# The race detector costs about half of the speed; CI has it on.
RACE ?=

.PHONY: help
help: ## Shows what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Builds bin/kbridge
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/kbridge ./cmd/kbridge

.PHONY: image
image: ## Builds the image IMAGE with docker, or with CONTAINER_TOOL
	$(CONTAINER_TOOL) build -t $(IMAGE) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) .

.PHONY: release
release: ## Makes a release in dist: archives for each platform, the image, the chart, checksums; the same bytes each time
	go run ./internal/release/build -version '$(VERSION)' dist

.PHONY: demo
demo: ## Shows kbridge at work on a cluster of its own, and ends by itself
	go run ./test/demo

.PHONY: tail-picture
tail-picture: ## Makes docs/images/tail.svg anew, from what the demo shows
	go run ./test/demo -picture docs/images/tail.svg

.PHONY: test
test: cluster prometheus ## Runs every test, with the real API server and the real brokers
	@go run ./internal/kafkabroker/fetch
	go test $(RACE) -timeout 80m $$(go list ./... | grep -v /internal/release$$)
	@# Archives and layers are packed by one goroutine, for ten minutes with the race detector.
	go test ./internal/release

.PHONY: cluster
cluster: ## Builds etcd and kube-apiserver for the tests, unless they are there
	@go run ./internal/testcluster/build

.PHONY: prometheus
prometheus: ## Unpacks Debian's Prometheus for the tests, unless one is there
	@go run ./internal/testprometheus/fetch

.PHONY: monitoring-test
monitoring-test: cluster prometheus ## Tests metrics, alerts and dashboard, with a real Prometheus
	go test $(RACE) -count=1 -timeout 20m ./test -run 'Metric|Alert|Dashboard|WhatBecomesOfEachEntrys'

.PHONY: chart
chart: ## Tests the Helm chart: lint, what it renders, and that an API server takes it
	go test $(RACE) -count=1 -timeout 40m ./test/chart

.PHONY: install-test
install-test: ## Installs kbridge with Helm on a cluster with a real node; needs Linux, root and Debian's packages
	go test -tags install -count=1 -timeout 60m -v ./test/install

.PHONY: browser
browser: ## Installs what the tests of the page need, where it is missing: Debian's Chromium and npm; needs root for that
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	@command -v npm >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm; }

.PHONY: screenshot
screenshot: cluster ## Takes the picture of the page anew: docs/images/page.png
	go test -count=1 -run TestThePageShowsAClusterAndABrokenSinkLive ./test/browser -update

.PHONY: lint
lint: ## Runs vet and golangci-lint
	go vet -tags install,man ./...
	go run $(GOLANGCI_LINT) run --build-tags install,man ./...

.PHONY: vuln
vuln: ## Looks for known vulnerabilities that kbridge's code reaches; VULN=-std fails for the standard library's too
	go run ./internal/vulncheck $(VULN)

.PHONY: outdated
outdated: ## Prints direct dependencies of which there is a newer version
	@go list -m -e -u -f '{{if not (or .Main .Indirect)}}{{with .Update}}{{$$.Path}} {{$$.Version}}, newer is {{.Version}} of {{.Time.Format "2006-01-02"}}{{end}}{{end}}' all | grep . || echo 'none that the module proxy knows of'

.PHONY: fuzz
fuzz: ## Fuzzes what parses bytes from outside, FUZZTIME (default 30s) each
	@for target in $$(grep -rhoE '^func Fuzz[A-Za-z]+' --include '*_test.go' . | awk '{print $$2}' | sort -u); do \
		package=$$(dirname $$(grep -rlE "^func $$target\(" --include '*_test.go' . | head -n 1)); \
		echo "$$target in $$package"; \
		go test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-30s} || exit 1; \
	done

.PHONY: bench
bench: ## Measures speed and memory, about a quarter of an hour on two cores; BENCH="-run jetstream" for a part
	go run ./bench $(BENCH)

.PHONY: bench-growth
bench-growth: ## Measures how they grow, up to 1,000,000 objects; about an hour
	go run ./bench -run '^growth' $(BENCH)

.PHONY: generate
generate: ## Makes generated files anew: config/schema.json, tables in docs/CONFIG.md, the chart's schema and README, the list of licenses
	go generate ./...
