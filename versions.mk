# Every tool the build uses, pinned. Nothing else is fetched by version.

# https://github.com/golangci/golangci-lint/releases
GOLANGCI_LINT_VERSION := v2.15.0

# Debian packages that the tests and the demo run (any version of bookworm or newer):
# gcc and libc6-dev for `go test -race`, tgt as the iSCSI target, fio as the NBD client.
DEBIAN_PACKAGES := ca-certificates gcc libc6-dev tgt fio
