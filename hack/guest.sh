#!/usr/bin/env bash
# Builds the guest into a folder: hack/guest.sh FOLDER. The same kernel, programs and sources
# give the same bytes. See docs/guest.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
out=$1
build=bin/guest-build

parts=$(hack/guest-parts.sh)
{ read -r kernel && read -r modules && read -r programs; } <<<"$parts"

mkdir -p "$build"
cd guest
# No paths, no version control, no build machine: the same bytes everywhere.
GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -buildid=' -o "../$build/init" ./cmd/init
# The builder runs on this machine, whatever its architecture.
go run ./cmd/mkguest -kernel "$kernel" -modules "$modules" -programs "$programs" -init "../$build/init" -out "../$out"
