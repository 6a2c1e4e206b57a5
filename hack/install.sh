#!/bin/sh
# Installs a release of Keelson on this machine: sh install.sh [--prefix FOLDER]. It needs no Go and no network. Run it in
# the folder of the release.
#
# As root the prefix is /usr/local, otherwise ~/.local. The programs go to PREFIX/lib/keelson, and PREFIX/bin gets links to
# keelson, its plugins of kubectl, and kubectl; an existing kubectl is kept. Running it again upgrades; running processes
# keep the old programs until the next `keelson up`.
set -eu

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) [ $# -gt 1 ] || fail "--prefix needs a folder"; prefix=$2; shift 2 ;;
	--prefix=*) prefix=${1#--prefix=}; shift ;;
	-h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
	*) fail "unknown argument $1; see --help" ;;
	esac
done
case $prefix in /*) ;; *) fail "--prefix $prefix: name an absolute path" ;; esac

[ "$(uname -s)" = Linux ] || fail "Keelson runs on Linux; this is $(uname -s)"
case $(uname -m) in
x86_64 | amd64) architecture=amd64 ;;
aarch64 | arm64) architecture=arm64 ;;
*) fail "there are programs for amd64 and arm64; this is $(uname -m)" ;;
esac

cd "$(dirname "$0")"
archive=
for file in keelson-v*-linux-"$architecture".tar.gz; do
	[ -f "$file" ] || fail "there is no keelson-VERSION-linux-$architecture.tar.gz beside install.sh"
	[ -z "$archive" ] || fail "there is more than one archive beside install.sh: $archive, $file"
	archive=$file
done
[ -f SHA256SUMS ] || fail "SHA256SUMS is missing: download the whole release"
grep -F "  $archive" SHA256SUMS | sha256sum --check --status || fail "$archive is damaged: its checksum is not that of SHA256SUMS"

# Unpacked next to the target and renamed, so that an interrupted upgrade leaves a complete installation.
mkdir -p "$prefix/lib" "$prefix/bin"
new=$prefix/lib/.keelson.new
rm -rf "$new"
mkdir "$new"
trap 'rm -rf "$new"' EXIT
tar -xzf "$archive" --strip-components=1 --no-same-owner -C "$new"
old=$prefix/lib/.keelson.old
rm -rf "$old"
if [ -e "$prefix/lib/keelson" ]; then mv "$prefix/lib/keelson" "$old"; fi
mv "$new" "$prefix/lib/keelson"
rm -rf "$old"
trap - EXIT

ln -sfn ../lib/keelson/keelson "$prefix/bin/keelson"
for plugin in vm crontab cluster; do
	ln -sfn ../lib/keelson/keelson "$prefix/bin/kubectl-$plugin"
	ln -sfn ../lib/keelson/keelson "$prefix/bin/kubectl_complete-$plugin"
done
if [ ! -e "$prefix/bin/kubectl" ] && ! command -v kubectl >/dev/null; then
	ln -sfn ../lib/keelson/keelson-kube "$prefix/bin/kubectl"
fi

echo "Installed $("$prefix/bin/keelson" version 2>/dev/null | sed -n '1s/  */ /p') in $prefix/lib/keelson."
if ! command -v keelson >/dev/null; then
	echo "Add it to the path: export PATH=$prefix/bin:\$PATH"
fi
if ! command -v "qemu-system-$(uname -m)" >/dev/null || ! command -v qemu-img >/dev/null; then
	echo "VirtualMachines need QEMU. On Debian and Ubuntu: apt-get install qemu-system-x86 qemu-utils"
fi
echo "Start it: keelson up"
