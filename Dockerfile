# kbridge, static, in an image with nothing else but what a program needs of a system.
#
#   docker build -t kbridge --build-arg VERSION=$(git describe --tags --always) --build-arg REVISION=$(git rev-parse HEAD) .
#   docker buildx build --platform linux/amd64,linux/arm64 …
ARG GO_VERSION=1.26

# The compiler runs on the builder's own platform, whatever it builds for.
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
ARG REVISION=
ARG TARGETOS
ARG TARGETARCH
# The flags of `make build`, so that both share what is compiled.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${REVISION}" -o /out/usr/local/bin/kbridge ./cmd/kbridge
# What is in it, for who has to know: read from the program, so that it is what was linked.
ARG CYCLONEDX_GOMOD=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    mkdir -p /out/usr/share/sbom && \
    CGO_ENABLED=0 go run ${CYCLONEDX_GOMOD} bin -json -std -noserial -notimestamp -version "${VERSION}" \
      -output /out/usr/share/sbom/kbridge.cdx.json /out/usr/local/bin/kbridge
# Authorities, time zones, a user, and a folder that it may write.
RUN mkdir -p /out/etc/ssl/certs /out/var/lib/kbridge && \
    cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ && \
    cp "$(go env GOROOT)/lib/time/zoneinfo.zip" /out/usr/share/zoneinfo.zip && \
    echo 'kbridge:x:65532:65532::/var/lib/kbridge:/sbin/nologin' > /out/etc/passwd && \
    echo 'kbridge:x:65532:' > /out/etc/group && \
    chown 65532:65532 /out/var/lib/kbridge

FROM scratch
COPY --from=build /out/ /
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="kbridge" \
      org.opencontainers.image.description="Turns a Kubernetes cluster into a stream of CloudEvents on NATS JetStream or Kafka" \
      org.opencontainers.image.source="https://github.com/kbridge-io/kbridge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# XDG_STATE_HOME lets `kbridge run` and `kbridge tail` meet in /var/lib/kbridge.
ENV PATH=/usr/local/bin ZONEINFO=/usr/share/zoneinfo.zip XDG_STATE_HOME=/var/lib
USER 65532:65532
WORKDIR /var/lib/kbridge
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/kbridge"]
CMD ["run", "--config", "/etc/kbridge/config.yaml"]
