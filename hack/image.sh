#!/usr/bin/env bash
# Builds an image FROM scratch around a program in bin/: hack/image.sh NAME[:TAG] DOCKERFILE PROGRAM. Nothing is pulled.
# `make image` builds both images. The engine is Docker's, or that of DOCKER=podman.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1 dockerfile=$2 program=$3
docker=${DOCKER:-docker}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

# Root certificates of Debian, Fedora and Alpine.
for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -f "$bundle" ]; then break; fi
done
if [ ! -f "$bundle" ]; then
	echo "No root certificates found on this machine. Install ca-certificates, or set SSL_CERT_FILE to a file." >&2
	exit 1
fi
if ! command -v "$docker" >/dev/null; then
	echo "Missing: $docker. On Debian and Ubuntu: apt-get install docker.io; another engine: DOCKER=podman" >&2
	exit 1
fi

install -m 0444 "$bundle" "$context/ca-certificates.crt"
install -m 0555 "bin/$program" "$context/$program"
"$docker" build --tag "$image" --file "$dockerfile" "$context"
