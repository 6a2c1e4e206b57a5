#!/usr/bin/env bash
# Fails, with the difference, on stale generated files, untidy module files, unformatted code, and
# forbidden imports that no linter finds. It works on a copy of the tree and changes nothing. Run it as
# `make verify`.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

module=$(go list -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()

# check NAME HINT COMMAND...: runs COMMAND, which prints what is wrong and fails.
check() {
	local name=$1 hint=$2 output status=0
	shift 2
	output=$("$@" 2>&1) || status=$?
	if [ "$status" = 0 ]; then
		echo "verify: $name: good"
		return
	fi
	printf '%s\nverify: %s: FAILED: %s\n' "$output" "$name" "$hint" >&2
	failed+=("$name")
}

# files PATTERN...: tracked and untracked files, except deleted and ignored ones.
files() {
	git ls-files --cached --others --exclude-standard --deduplicate -- "$@" |
		while IFS= read -r file; do if [ -f "$file" ]; then printf '%s\n' "$file"; fi; done
}

copy() {
	mkdir -p "$1"
	files | tar -cf - -T - | tar -xf - -C "$1"
}

generated() {
	copy "$work/was" && copy "$work/now" && "$work/now/hack/generate.sh" && (cd "$work" && diff -ru was now)
}

# The page of the console, from its sources and the locked dependencies.
page() {
	copy "$work/page" && (cd "$work/page/console" && npm ci --silent --ignore-scripts && npm run --silent check &&
		DIST="$work/dist" npm run --silent build) && diff -r internal/console/dist "$work/dist"
}

tidy() {
	local status=0 directory
	while IFS= read -r mod; do
		directory=$(dirname "$mod")
		(cd "$directory" && go mod tidy -modfile="${mod##*/}" -diff) || { status=1; echo "in $mod"; }
	done < <(files go.mod '*/go.mod' 'kube/go.v*.mod')
	return "$status"
}

formatted() {
	local bad
	bad=$(files '*.go' | tr '\n' '\0' | xargs -0 gofmt -l) || return
	[ -z "$bad" ] || { echo "$bad"; return 1; }
}

# imports PACKAGES...: "PACKAGE IMPORT" for every import outside the standard library, including
# those of tests.
imports() {
	go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}{{range .TestImports}}{{$p}} {{.}}
{{end}}{{range .XTestImports}}{{$p}} {{.}}
{{end}}' "$@" | awk 'NF == 2 && $2 ~ /^[^\/]*\./' | sort -u
}

# unwanted PATTERN: the lines of the input whose import PATTERN does not match.
unwanted() {
	awk -v pattern="$1" '$2 !~ pattern { print $1 " imports " $2; bad = 1 } END { exit bad }'
}

# This keeps api/ and client/ separable into their own module.
client_imports() {
	imports ./client/... | unwanted "^($module/(api|client)/|k8s.io/(api|apimachinery|client-go|kube-openapi)/|sigs.k8s.io/structured-merge-diff/)"
}

# Controllers interact only through API objects, also in tests.
controller_imports() {
	imports ./internal/controller/... | awk -v prefix="$module/internal/controller/" '
		index($2, prefix) == 1 {
			split(substr($1, length(prefix) + 1), from, "/")
			split(substr($2, length(prefix) + 1), to, "/")
			if (from[1] != to[1]) { print $1 " imports " $2; bad = 1 }
		}
		END { exit bad }'
}

# The client runs on macOS and Windows, where Keelson's own parts cannot be compiled, and is a small download. Of client-go/kubernetes,
# which controller-runtime imports, only what our packages use gets linked. A template of cobra links text/template, with which the
# linker keeps every method of every type.
client_program_imports() {
	local packages folders bad
	packages=$(GOOS=darwin go list -deps ./cmd/kubectl-keelson)
	folders=$(GOOS=darwin go list -deps -f '{{.ImportPath}} {{.Dir}}' ./cmd/kubectl-keelson | awk -v module="$module/" 'index($1, module) == 1 { print $2 }')
	bad=$(
		grep -E "^$module/internal/(controller|controlplane|driver|engine|kube|launcher|machine|manager|network|node|process|setup|tracing)(/|$)" <<<"$packages"
		grep -E "^(sigs.k8s.io/controller-runtime(/pkg/(builder|cache|controller|handler|manager|webhook))?$|go.opentelemetry.io/|google.golang.org/grpc(/|$))" <<<"$packages"
		# shellcheck disable=SC2086
		grep -E --exclude='*_test.go' '"(k8s.io/client-go/kubernetes|text/template|html/template)"$|\.Set(Usage|Help|Version)Template\(' \
			$(printf '%s/*.go ' $folders)
	) || [ -n "$bad" ] || return 0
	echo "$bad"
	return 1
}

package_names() {
	go list -f '{{.Name}} {{.ImportPath}}' ./... |
		awk '$1 ~ /^(util|utils|common|helpers?|misc|base|types)$/ { print $2; bad = 1 } END { exit bad }'
}

check "generated files" "run make generate and commit the result" generated
if command -v npm >/dev/null; then
	check "page of the console" "run make console and commit the result" page
else
	echo "verify: page of the console: NOT CHECKED: there is no npm"
fi
check "module files" "run go mod tidy there and commit the result" tidy
check "format" "run gofmt -w on these files" formatted
check "imports of client" "the generated code may import the Kubernetes client libraries only" client_imports
check "imports of kubectl-keelson" "the client must not need Keelson on its host, see target.Host, and stay small" client_program_imports
check "imports between controllers" "move what both need to a package of its own; controllers meet through API objects" controller_imports
check "package names" "name the package after what it does" package_names

if [ ${#failed[@]} != 0 ]; then
	echo "verify: ${#failed[@]} of 8 checks failed" >&2
	exit 1
fi
