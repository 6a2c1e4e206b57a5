#!/usr/bin/env bash
# Writes kube/go.v1.35.mod and kube/go.v1.35.sum, the dependencies of the components of another Kubernetes version:
# hack/kube-mod.sh v1.35.4 sigs.k8s.io/kwok@v0.7.0. It needs the module proxy. What is not named, such as etcd, stays as in
# kube/go.mod: one etcd reads the data of all versions. kwok is not built in, but an older one keeps newer libraries out.
# Build with `make kube KUBE_VERSION=v1.35.4`, run `make test-versions`, and commit both files.
set -euo pipefail
version=${1:-}
if [[ ! $version =~ ^v1\.[0-9]+\.[0-9]+$ ]]; then
	echo "usage: hack/kube-mod.sh VERSION [MODULE@VERSION...], where VERSION is a release of Kubernetes such as v1.35.4" >&2
	exit 2
fi
others=("${@:2}")
cd "$(dirname "$0")/../kube"
name=go.${version%.*}
if [ "${version%.*}" = "$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ { sub(/\.[0-9]+$/, "", $2); print $2; exit }' go.mod)" ]; then
	echo "kube/go.mod has ${version%.*} already: change the versions there" >&2
	exit 1
fi
published=v0${version#v1} # of the staging modules

# replaced FILE: the modules that a module file replaces.
replaced() {
	awk '$1 == "replace" && $2 == "(" { inside = 1; next } inside && $1 == ")" { inside = 0 } inside && $2 == "=>" { print $1 } $1 == "replace" && $3 == "=>" { print $2 }' "$1"
}

upstream=$(GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
trap 'rm -f "$name.mod.new" "$name.sum.new"' EXIT
{
	printf '// The dependencies of the components of Kubernetes %s. Written by: hack/kube-mod.sh %s\n' "$version" "$*"
	grep -v '// indirect$' go.mod # go mod tidy chooses them anew
} >"$name.mod.new"
edits=(-require="k8s.io/kubernetes@$version" -require="k8s.io/client-go@$published" -require="k8s.io/component-base@$published")
for module in $(replaced go.mod); do edits+=(-dropreplace="$module"); done
for module in $(replaced "$upstream"); do edits+=(-replace="$module=$module@$published"); done
for module in "${others[@]+"${others[@]}"}"; do edits+=(-require="$module"); done
godebug=$(awk '$1 == "godebug" && $2 ~ /^default=/ { print $2; exit }' "$upstream") # upstream builds with it
[ -z "$godebug" ] || edits+=(-godebug="$godebug")
go mod edit "${edits[@]}" "$name.mod.new"
mv "$name.mod.new" "$name.mod"
rm -f "$name.sum"
GOFLAGS=-mod=mod go mod tidy -modfile="$name.mod"
echo "Written: kube/$name.mod, kube/$name.sum. Build with: make kube KUBE_VERSION=$version"
