#!/usr/bin/env bash
# Copies promtool, which checks and tests the alerts, to FILE: hack/promtool.sh FILE. It comes from PATH or
# from Debian's package prometheus. The distribution's tools download the package and verify its
# signature. It is unpacked into a cache and not installed, because the package would start a server.
set -euo pipefail

target=$1
[ ! -x "$target" ] || exit 0
mkdir -p "$(dirname "$target")"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/promtool
found=$(command -v promtool || true)
if [ -z "$found" ] && [ -x "$cache/usr/bin/promtool" ]; then found=$cache/usr/bin/promtool; fi
if [ -z "$found" ]; then
	for command in apt-get apt-cache dpkg-deb; do
		command -v "$command" >/dev/null && continue
		echo "promtool: this system has no $command to fetch Debian's package prometheus with. Put promtool into PATH" >&2
		exit 1
	done
	if [ "${KEELSON_NO_INSTALL:-}" = 1 ]; then
		echo "promtool: not found, and KEELSON_NO_INSTALL=1 forbids downloading it. Put promtool into PATH" >&2
		exit 1
	fi
	if ! apt-cache show prometheus >/dev/null 2>&1; then
		sudo=()
		[ "$(id -u)" = 0 ] || sudo=(sudo -n)
		echo "promtool: apt does not know the package prometheus yet; running: ${sudo[*]+"${sudo[*]} "}apt-get update" >&2
		"${sudo[@]+"${sudo[@]}"}" apt-get update --quiet=2 >&2
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	echo "promtool: fetching the package prometheus (about 19 MB) into $cache; it is not installed" >&2
	# apt tries to download as its own user, which may not write here; that is only a warning.
	(cd "$work" && apt-get download --quiet=2 prometheus >&2)
	dpkg-deb --extract "$(find "$work" -name '*.deb')" "$work/unpacked"
	mkdir -p "$cache/usr/bin"
	mv "$work/unpacked/usr/bin/promtool" "$cache/usr/bin/promtool"
	found=$cache/usr/bin/promtool
fi
ln -sfn "$found" "$target"
