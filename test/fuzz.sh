#!/usr/bin/env bash
# Runs each fuzz test of the module for the given time; stops at the first finding.
set -euo pipefail

time=${1:-10s}
found=0
while IFS=: read -r file name; do
  dir=$(dirname "$file")
  echo "fuzz $dir $name"
  go test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time"
  found=$((found + 1))
done < <(grep -rhoHE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd pkg test | sed 's/:func /:/' | sort)
if [ "$found" -eq 0 ]; then
  echo "fuzz: no fuzz test found" >&2
  exit 1
fi
