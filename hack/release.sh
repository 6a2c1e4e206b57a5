#!/usr/bin/env bash
# Builds a release into dist/VERSION: hack/release.sh VERSION [IMAGE]. IMAGE is the image that install.yaml names, without
# a tag, `keelson` by default. The same commit, Go version, guest kernel, certificates and packages of QEMU produce the same bytes.
# `make release` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
umask 022
version=${1:-} image=${2:-keelson}
out=dist/$version built=dist/build

if [[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "VERSION=$version is not a version such as v1.2.3 or v1.2.3-rc.1" >&2
	exit 1
fi
if ! grep -q "^## $version - 20" CHANGELOG.md && [ "${KEELSON_RELEASE_DIRTY:-}" != 1 ]; then
	echo "CHANGELOG.md has no section \"## $version - DATE\". To try the release anyway, set KEELSON_RELEASE_DIRTY=1" >&2
	exit 1
fi
if [ -n "$(git status --porcelain)" ] && [ "${KEELSON_RELEASE_DIRTY:-}" != 1 ]; then
	echo "There are uncommitted changes: a release is built from a commit. To try it anyway, set KEELSON_RELEASE_DIRTY=1" >&2
	git status --short >&2
	exit 1
fi
for certificates in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -f "$certificates" ]; then break; fi
done
if [ ! -f "$certificates" ]; then
	echo "No root certificates found on this machine. Install ca-certificates, or set SSL_CERT_FILE to a file." >&2
	exit 1
fi

rm -rf "$built" "$out"
mkdir -p "$out"
for architecture in amd64 arm64; do
	echo "release: the programs for linux/$architecture" >&2
	make --no-print-directory GOARCH=$architecture GOOS=linux BIN="$built/$architecture" VERSION="$version" build node >&2
	rm "$built/$architecture/kubectl" # a link, which the archive gets, too
done
for system in linux darwin windows; do
	for architecture in amd64 arm64; do
		echo "release: the client for $system/$architecture" >&2
		make --no-print-directory GOOS=$system GOARCH=$architecture BIN="$built/$system-$architecture" VERSION="$version" client >&2
		mkdir -p "$built/client"
		mv "$built/$system-$architecture/client" "$built/client/$system-$architecture"
		rm -r "${built:?}/$system-$architecture"
	done
done
make --no-print-directory guest bin/kubectl >&2
mkdir -p "$built/guest/amd64"
cp bin/guest/* "$built/guest/amd64/"
hack/launcher-image.sh "$built/launcher/amd64" "$built/packages"

hack/dist.sh "$image:$version" "$out/install.yaml"
install -m 755 hack/install.sh "$out/install.sh"
(cd hack/release && go build -trimpath -o ../../dist/build/release .)
"$built/release" -version "$version" -built "$built" -out "$out" -certificates "$certificates"
rm -rf "$built"
du -h "$out"/* >&2
