#!/usr/bin/env bash
# Builds the guest into a folder: hack/guest.sh FOLDER. The same kernel and sources
# give the same bytes, and a guest that is up to date is not built again. See
# docs/guest.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
out=$1

{ read -r kernel && read -r modules; } < <(hack/guest-kernel.sh) || {
	echo "guest: there is no kernel" >&2
	exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd guest
# The same bytes everywhere: no paths, no version control, no build machine.
GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -buildid=' -o "$work/init" ./cmd/init
go run ./cmd/mkguest -kernel "$kernel" -modules "$modules" -init "$work/init" -out "../$out"
