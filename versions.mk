# Every tool the build uses, pinned. Nothing else is fetched by version.

# https://github.com/golangci/golangci-lint/releases
GOLANGCI_LINT_VERSION := v2.15.0

# Debian packages, at the version that the release on the machine has (bookworm
# or newer). The demo: an iSCSI target, and an NBD client that verifies.
DEMO_PACKAGES := tgt fio

# The tests: a C compiler for `go test -race`, and NBD clients for make interop.
TEST_PACKAGES := gcc libc6-dev libnbd-bin nbd-client qemu-utils

# The programs that make bench-peers measures against.
BENCH_PACKAGES := nbdkit qemu-system-common qemu-block-extra libiscsi-bin
