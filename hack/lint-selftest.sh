#!/usr/bin/env bash
# Tests that the rules in .golangci.yml fire exactly where they should: it lints a small module with the
# layout of this one, whose files (hack/testdata/lint) break the rules on purpose. A line that must be
# reported has the comment "want: LINTER"; no other line may be reported. `make lint` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

module=$(go list -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
work=$(cd "$work" && pwd -P)
tools=$PWD/go.lint.mod

cp -R hack/testdata/lint/. "$work"
cp .golangci.yml "$work"
printf 'module %s\n\ngo 1.26.0\n' "$module" >"$work/go.mod"

# Empty packages for the imports from this module.
for package in client/listers guest kube internal/stub internal/cli internal/cli/up internal/controller \
	internal/controlplane/x internal/driver/qemu internal/engine/local internal/manager/x internal/testing/env; do
	mkdir -p "$work/$package"
	name=$(basename "$package")
	printf '// Package %s is imported.\npackage %s\n' "$name" "$name" >"$work/$package/stub.go"
done

# A function of 61 lines and a file of 401.
mkdir "$work/internal/long"
{
	printf '// Package long is too long.\npackage long // want: revive\n\n'
	printf '// Long is too long.\nfunc Long(n int) int { // want: funlen\n'
	for _ in $(seq 61); do printf '\tn++\n'; done
	printf '\treturn n\n}\n'
	for n in $(seq 334); do printf '// Comment %d.\n' "$n"; done
} >"$work/internal/long/long.go"

golangci=$(go tool -modfile="$tools" -n golangci-lint)
status=0
(cd "$work" && GOFLAGS=-mod=mod "$golangci" run --output.text.print-issued-lines=false --output.text.colors=false ./...) \
	>"$work/report" 2>"$work/errors" || status=$?
if [ "$status" != 1 ]; then
	cat "$work/report" "$work/errors" >&2
	echo "lint-selftest: golangci-lint ended with status $status instead of 1 (findings)" >&2
	exit 1
fi

# Both sides as "FILE:LINE LINTER". revive reports a file's length at its last line.
sed -nE 's/^([^:]+:[0-9]+):.* \(([a-z]+)\)$/\1 \2/p' "$work/report" |
	sed -E 's,(internal/long/long.go):[0-9]+ revive,\1:2 revive,' | sort -u >"$work/got"
(cd "$work" && grep -rnE --include='*.go' '/[/*] want: ' . | sed -E 's,^\./([^:]+:[0-9]+):.*/[/*] want: ([a-z]+).*$,\1 \2,') |
	sort -u >"$work/want"
if ! diff "$work/want" "$work/got"; then
	echo "lint-selftest: < was not reported, > was reported but should not be" >&2
	exit 1
fi
echo "lint-selftest: $(wc -l <"$work/want") findings, as wanted"
