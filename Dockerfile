# The image that `make image` makes, with a container engine instead: the same files.
#   docker build --build-arg VERSION=v1 -t csi-mpath:v1 .
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETARCH VERSION=unknown
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /csi-mpath ./cmd/csi-mpath
RUN cd test/release && go run ./image --arch $TARGETARCH --bin /csi-mpath --work /packages --rootfs /rootfs

FROM scratch
COPY --from=build /rootfs/ /
ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/bin/csi-mpath"]
