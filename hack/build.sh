#!/usr/bin/env bash
# go build that tells how far it is: hack/build.sh OUTPUT [FLAGS] PACKAGES. It says nothing if little has to be compiled.
set -euo pipefail
output=$1
shift
compiled=0 total=0 tenths=0
go build -v -o "$output" "$@" 2>&1 | while IFS= read -r line; do
	if [[ ! $line =~ ^[A-Za-z0-9._~/-]+$ ]]; then # it is not the name of a package
		echo "$line" >&2
	elif ((++compiled == 1)); then
		began=$SECONDS
		total=$(($(go list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" | wc -l) + 1))
	elif ((total >= 100 && compiled * 10 / total > tenths)); then
		tenths=$((compiled * 10 / total))
		echo "$(basename "$output"): $compiled of $total packages are compiled, about $(((SECONDS - began) * (total - compiled) / compiled)) s left"
	fi
done
