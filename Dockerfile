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
# What is in the image is what `make release` puts into it: kbridge, the list of what it is linked from and the licenses of
# that, authorities, time zones, a user, and a folder that it may write.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go run ./internal/release/build -tree -version "${VERSION}" -commit "${REVISION}" -platforms "${TARGETOS}/${TARGETARCH}" /out

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
