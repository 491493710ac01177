# The gateway, and every other command, in an image without a shell. Built from a checkout with its .git directory, it says its
# version: docker build -t sluice .
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w -buildid=' -o /out/sluice ./cmd/sluice \
    && mkdir /out/state

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/sluice /usr/local/bin/sluice
COPY LICENSE THIRD_PARTY_LICENSES /usr/share/doc/sluice/
# What the gateway keeps: learned limits, clients and what they spent.
COPY --from=build --chown=65532:65532 /out/state /var/lib/sluice
ENV XDG_STATE_HOME=/var/lib
VOLUME /var/lib/sluice
USER 65532:65532
EXPOSE 8787 9464
ENTRYPOINT ["/usr/local/bin/sluice"]
CMD ["serve", "--config", "/etc/sluice/sluice.yaml"]
