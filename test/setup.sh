#!/usr/bin/env bash
# Installs the Debian packages named as arguments; does nothing when all are there.
set -euo pipefail

missing=()
for p in "$@"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian; install what corresponds to: ${missing[*]}" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "setup: not root; run as root: $install" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A package may bring a service that starts itself; ours run under the tests only.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$log" "$policy"' EXIT
fi

# quietly runs a step and shows the end of what it said when it fails.
quietly() {
  timeout 300 "$@" </dev/null >"$log" 2>&1 && return
  local rc=$?
  echo "setup: '$*' failed with exit code $rc:" >&2
  tail -n 30 "$log" >&2
  return $rc
}
export log
export -f quietly

# apt's own retries help against a lost packet, ours against a mirror that is
# just being synced: its lists are read again before the next attempt. apt-get
# update without --error-on=any calls a missing list a warning.
fetch() {
  quietly apt-get -q -o Acquire::Retries=3 update --error-on=any || true
  quietly apt-get -qy -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
}
export -f fetch
"$(dirname "$0")/retry.sh" bash -c 'fetch "$@"' fetch "${missing[@]}"
