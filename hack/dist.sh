#!/usr/bin/env bash
# Writes dist/install.yaml, or another file, from the kustomize base, with an image: hack/dist.sh NAME:TAG [FILE].
# `make dist` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1 file=${2:-dist/install.yaml}

# The tag follows the last colon, unless that belongs to a port.
name=${image%:*} tag=${image##*:}
if [ "$name" = "$image" ] || [[ $tag == */* ]]; then
	echo "IMAGE=$image has no tag: name one, such as $image:v1" >&2
	exit 1
fi
work=$(mktemp -d dist.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat >"$work/kustomization.yaml" <<EOF
resources: [../config/default]
images: [{name: keelson, newName: "$name", newTag: "$tag"}]
EOF
mkdir -p "$(dirname "$file")"
bin/kubectl kustomize "$work" >"$work/install.yaml"
mv "$work/install.yaml" "$file"
echo "$file: $(grep -c '^kind: ' "$file") objects, image $image" >&2
