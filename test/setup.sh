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
for step in "apt-get -q update" "apt-get -qy install --no-install-recommends ${missing[*]}"; do
  if ! timeout 600 $step </dev/null >"$log" 2>&1; then
    echo "setup: '$step' failed:" >&2
    tail -n 30 "$log" >&2
    exit 1
  fi
done
