#!/usr/bin/env bash
# Builds a Debian cloud image for tests: hack/debian-image.sh FILE [PACKAGE...]. It is the image of
# `keelson vm image build debian`, with the packages. The tests of the driver qemu and
# hack/node-debian.sh boot it. KEELSON_DEBIAN_SUITE=bookworm selects Debian 12.
#
# A build takes some minutes, so the image is cached by its inputs; KEELSON_DEBIAN_UPDATE=1 rebuilds it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=internal/debian/build.sh
out=$1
shift

suite=${KEELSON_DEBIAN_SUITE:-trixie}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/debian-image
name=$(basename "$out" .qcow2)
image=$cache/$name-$suite-$({ cat "$build" && echo "$@"; } | sha256sum | cut -c 1-16).qcow2

if [ "${KEELSON_DEBIAN_UPDATE:-}" = 1 ]; then
	rm -f "$image"
fi
if [ ! -e "$image" ]; then
	mapfile -t needs < <("$build" needs)
	hack/require.sh "${needs[@]}"
	mkdir -p "$cache"
	"$build" "$image" "$suite" "$@"
	# Images of earlier versions of the inputs.
	find "$cache" -name "$name-*" ! -path "$image*" -delete
fi
mkdir -p "$(dirname "$out")"
ln -sfn "$image" "$out"
