#!/usr/bin/env bash
# Runs govulncheck on every shipped module. Its database is on the network; GOVULNDB is the URL of another
# one, such as file:///DIRECTORY with the entries of github.com/golang/vulndb, data/osv. An unreachable
# database is reported, but is a failure only with KEELSON_REQUIRE_VULNCHECK=1. All findings are failures,
# except for the entries explained below.
set -euo pipefail
cd "$(dirname "$0")/.."

govulncheck=$(go tool -modfile=go.tools.mod -n govulncheck)
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT

# Entries that affect all versions of k8s.io/kubernetes, without a fixed one:
# GO-2025-3547: a Pod may live a moment longer than the NetworkPolicies of a namespace that is deleted. The components that are built
#   here delete Pods first: their feature gate OrderedNamespaceDeletion is locked to on.
# GO-2025-3521: volumes of the type gitRepo can read other repositories on the node. Their feature gate is locked to
# off.
accepted="GO-2025-3547 GO-2025-3521"

# check WHAT ARGUMENT...: runs govulncheck in the current directory.
check() {
	local what=$1 status=0 output
	echo "vulncheck: $what"
	shift
	output=$("$govulncheck" -db "${GOVULNDB:-https://vuln.go.dev}" "$@" 2>&1) || status=$?
	printf '%s\n' "$output"
	[ "$status" != 0 ] || return 0
	if [ "$status" = 1 ] && grep -q '^govulncheck: fetching vulnerabilities: ' <<<"$output"; then
		echo "*** vulncheck: NOT CHECKED: the vulnerability database cannot be reached ***" >&2
		[ "${KEELSON_REQUIRE_VULNCHECK:-}" != 1 ] || exit 1
		exit 0
	fi
	local found
	found=$(sed -n 's/^Vulnerability #[0-9]*: //p' <<<"$output")
	[ -n "$found" ] || exit "$status"
	for entry in $found; do
		[[ " $accepted " == *" $entry "* ]] || exit "$status"
	done
	echo "vulncheck: $what: accepted, for the reasons in $0: ${found//$'\n'/ }"
}

check keelson ./...
for module in guest node; do
	cd "$module"
	check "$module" ./...
	cd ..
done
# The call graph of Kubernetes takes more than 9 GB of memory. The linker computes it, too: it removes unreachable functions,
# and without -s the program has the names of the rest.
(cd kube && CGO_ENABLED=0 go build -trimpath -o "$built/keelson-kube" .)
check keelson-kube -mode binary "$built/keelson-kube"
