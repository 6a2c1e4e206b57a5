#!/usr/bin/env bash
# Builds the Kubernetes components of a version into FILE: hack/kube.sh VERSION FILE. kube/go.mod has the dependencies of
# the default version, kube/go.v1.35.mod those of another one, and so on; all are built from the same sources. Nothing of
# the build machine and no date goes in, so that a build can be repeated. `make build` and `make kube` call it.
set -euo pipefail
version=$1 file=$2
[[ $file == /* ]] || file=$PWD/$file
cd "$(dirname "$0")/../kube"

# kubernetes MODFILE: the Kubernetes version in it.
kubernetes() {
	awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ { print $2; exit }' "$1"
}

modfile=
available=()
for candidate in go.mod go.v*.mod; do
	found=$(kubernetes "$candidate")
	available+=("$found")
	if [ "$found" = "$version" ]; then modfile=$candidate; fi
done
if [ -z "$modfile" ]; then
	echo "KUBE_VERSION=$version: kube/ has no module file of this version. There are: ${available[*]}." >&2
	echo "hack/kube-mod.sh writes one for another minor version, or for another patch version: hack/kube-mod.sh v1.35.4" >&2
	exit 1
fi

IFS=. read -r major minor _ <<<"${version#v}"
flags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitCommit= -X $package.gitTreeState=archive"
done
echo "Building the Kubernetes $version components, about 5 minutes the first time"
mkdir -p "$(dirname "$file")"
# Written beside and renamed: a process may be running the old one.
# A kwok compiles with few Kubernetes versions, and that of the default version works with all.
tags=
[ "$modfile" = go.mod ] || tags=nokwok
CGO_ENABLED=0 ../hack/build.sh "$file.new" -modfile="$modfile" -tags "$tags" -trimpath -ldflags "$flags" .
mv "$file.new" "$file"
