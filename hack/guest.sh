#!/usr/bin/env bash
# Builds the guest into a folder: hack/guest.sh FOLDER. The same kernel and sources
# give the same bytes. See docs/guest.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
out=$1
build=bin/guest-build

paths=$(hack/guest-kernel.sh)
{ read -r kernel && read -r modules; } <<<"$paths"$'\n'

mkdir -p "$build"
cd guest
export GOOS=linux GOARCH=amd64 CGO_ENABLED=0

# u-root's commands and our shell in one binary. Which ones, is what go.mod names as
# tools. This takes a minute, so it is only done when something changed.
mapfile -t packages < <(awk '$1 == "tool" { inside = 1 } $1 == ")" { inside = 0 } inside && /u-root\/cmds\// { print $1 }' go.mod)
packages+=(github.com/keelson-dev/keelson/guest/cmd/sh)
sum=$( (go version && cat go.mod go.sum cmd/sh/*.go) | sha256sum)
if [ "$sum" != "$(cat "../$build/commands.sum" 2>/dev/null)" ]; then
	echo "guest: building the guest's ${#packages[@]} commands, about a minute" >&2
	if ! go tool makebb -o "../$build/commands.new" "${packages[@]}" >"../$build/commands.log" 2>&1; then
		cat "../$build/commands.log" >&2
		exit 1
	fi
	mv "../$build/commands.new" "../$build/commands"
	echo "$sum" >"../$build/commands.sum"
fi

# No paths, no version control, no build machine: the same bytes everywhere.
go build -trimpath -ldflags '-s -w -buildid=' -o "../$build/init" ./cmd/init
# The builder is for this machine, whatever that is.
GOOS='' GOARCH='' go run ./cmd/mkguest -kernel "$kernel" -modules "$modules" -init "../$build/init" \
	-commands "../$build/commands" -out "../$out" "${packages[@]##*/}"
GOOS='' GOARCH='' go run ./cmd/mkrootfs -commands "../$build/commands" -out "../$out/rootfs.tar" "${packages[@]##*/}"
