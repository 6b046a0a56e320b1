#!/usr/bin/env bash
# Runs a command that fetches something; when it fails, again, after ever longer
# pauses: the network and the servers behind it have bad moments.
set -uo pipefail

for pause in 5 20 60 0; do
  "$@" && exit 0
  rc=$?
  [ "$pause" -gt 0 ] || break
  echo "retry: '$*' failed with exit code $rc; again in ${pause}s" >&2
  sleep "$pause"
done
exit "$rc"
