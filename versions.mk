# Every tool the build uses, pinned. Nothing else is fetched by version.

# https://github.com/golangci/golangci-lint/releases
GOLANGCI_LINT_VERSION := v2.15.0

# Debian packages, at the version that the release on the machine has (bookworm
# or newer). The demo: an iSCSI target, and an NBD client that verifies.
DEMO_PACKAGES := tgt fio

# The tests: a C compiler for `go test -race`; for make interop, NBD clients and
# iSCSI initiators, with the conformance suite iscsi-test-cu, and what makes, checks
# and mounts file systems.
TEST_PACKAGES := gcc libc6-dev libnbd-bin nbd-client qemu-utils qemu-block-extra libiscsi-bin e2fsprogs xfsprogs util-linux

# The programs that make bench-peers measures against.
BENCH_PACKAGES := nbdkit qemu-system-common qemu-block-extra libiscsi-bin iproute2

# make vm-test: QEMU, what the kernel and its file systems need inside, and who
# connects /dev/nbdN besides us. The kernel comes from linux-image-KERNEL-amd64.
# What most people reach storage with, for our target: open-iscsi and
# multipath-tools, nvme-cli. dmsetup holds writes back below the agent's exports.
VM_PACKAGES := qemu-system-x86 xz-utils kmod e2fsprogs xfsprogs fio tgt nbd-client \
	open-iscsi multipath-tools sg3-utils nvme-cli dmsetup lvm2 thin-provisioning-tools btrfs-progs
KERNEL      ?= 6.12

# make e2e: Kubernetes, built in test/e2e/tools, whose go.mod pins it too. 1.38 has no
# cgroup v1 and no containerd 1.6 any more, which is what the machines of CI have.
KUBERNETES_VERSION := 1.37.2
E2E_PACKAGES := containerd runc busybox-static containernetworking-plugins iptables iproute2 util-linux mount e2fsprogs xfsprogs
