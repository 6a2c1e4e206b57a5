#!/usr/bin/env bash
# Generates code and manifests from the Go types and the controllers' markers: deepcopy functions,
# CRDs, the manager's role, the Helm chart, the client packages, and the reference pages. Run it as
# `make generate`. It takes no arguments, its output is reproducible, and it removes stale files.
#
# A new kind needs no change here: packages below api/ with +genclient and +kubebuilder:rbac markers
# are found.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
# As make build compiles programs, which has compiled most packages.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:--mod=readonly -trimpath}"

module=$(go list -m)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

tool() { go tool -modfile=go.tools.mod "$@"; }

# replace OLD NEW: replaces the directory OLD by NEW.
replace() {
	mkdir -p "$(dirname "$1")"
	rm -rf "$1"
	cp -R "$2" "$1"
}

echo "generate: deepcopy functions"
tool controller-gen object paths=./api/...

echo "generate: api/crds"
tool controller-gen crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir="$new/crds"
go run ./hack/crontabschema "$new/crds/stable.example.com_crontabs.yaml"
go run ./hack/definitions "$new"/crds/*.yaml
{
	echo "# Generated, for config/default."
	echo "resources:"
	(cd "$new/crds" && printf -- '- %s\n' *.yaml)
} >"$new/kustomization.yaml"
rm -f api/crds/*.yaml
cp "$new"/crds/*.yaml "$new/kustomization.yaml" api/crds/

# controller-gen silently drops markers of this kind in doc comments. They work in a separate comment
# with an empty line after it.
lost=$(find internal/access internal/controller internal/driver internal/engine internal/manager -name '*.go' -exec awk '
	FNR == 1 { marker = 0 }
	/^[[:space:]]*\/\/ ?\+kubebuilder:rbac:/ { marker = FNR }
	!/^[[:space:]]*\/\// && marker { if (NF) print FILENAME ":" marker; marker = 0 }' {} +)
if [ -n "$lost" ]; then
	printf '%s\ngenerate: put an empty line after these +kubebuilder:rbac markers: in a doc comment they do not count\n' "$lost" >&2
	exit 1
fi

# One role for the manager of the installation, and one for each controller, so that a manager with
# only some controllers gets only their permissions. Controllers with a folder in config/kinds are off
# by default: their rules and their webhook go there.
echo "generate: config/rbac, config/kinds"
mkdir "$new/rbac"
role() { # role NAME FILE PACKAGES...
	local name=$1 file=$2
	shift 2
	tool controller-gen rbac:roleName="$name",fileName="$file" "${@/#/paths=}" output:rbac:dir="$new/rbac"
}
# rules_patches FILE DIRECTORY: writes clusterrole.yaml and role.yaml, the patches of kustomize that add the rules of the
# roles in FILE.
rules_patches() {
	awk -v directory="$2" '
		/^---/ { rules = 0 }
		/^kind: / { file = directory "/" tolower($2) ".yaml"; print "# Generated from the markers of the controller." >file }
		rules && /^- / { print "- op: add\n  path: /rules/-\n  value:" >file; sub(/^- /, "  ") }
		rules { print "  " $0 >file }
		/^rules:/ { rules = 1 }' "$1"
}
role keelson-own own.yaml ./internal/manager/...
# The access API of machines, which belongs to the kind VirtualMachine.
role keelson-access access.yaml ./internal/access/...
# An administrator binds it in the namespaces of hosted control planes.
role keelson-hosted hosted.yaml ./internal/engine/hosted/...
# Drivers with permissions of their own have a component in config/drivers, for an installation with the kind VirtualMachine.
for directory in config/drivers/*/; do
	driver=$(basename "$directory")
	role "keelson-driver-$driver" "driver-$driver.yaml" "./internal/driver/$driver/..."
	rules_patches "$new/rbac/driver-$driver.yaml" "config/drivers/$driver"
done
default=(./internal/manager/...)
for directory in internal/controller/*/; do
	controller=$(basename "$directory")
	role "keelson-$controller" "role-$controller.yaml" "./internal/controller/$controller/..."
	if [ ! -f "$new/rbac/role-$controller.yaml" ]; then
		echo "generate: no +kubebuilder:rbac marker in $directory" >&2
		exit 1
	fi
	if [ -d "config/kinds/$controller" ]; then
		packages=("./internal/controller/$controller/...")
		[ "$controller" = virtualmachine ] && packages+=(./internal/access/...)
		role "keelson-$controller" "kind.yaml" "${packages[@]}"
		rules_patches "$new/rbac/kind.yaml" "config/kinds/$controller"
		rm "$new/rbac/kind.yaml"
		go run ./cmd/keelson manifests webhook --controllers="$controller" --webhook-service-namespace=keelson-system \
			>"$new/webhook.yaml"
		mv "$new/webhook.yaml" "config/kinds/$controller/"
	else
		default+=("./internal/controller/$controller/...")
	fi
done
role keelson-manager role.yaml "${default[@]}"
rm -f config/rbac/{role,own,access,hosted}.yaml config/rbac/{role,driver}-*.yaml
cp "$new"/rbac/*.yaml config/rbac/
go run ./hack/aggregate >config/rbac/aggregated.yaml

# The alerts in the format of the Prometheus operator.
echo "generate: config/monitoring"
{
	cat <<-EOF
		# Generated from alerts.yaml.
		apiVersion: monitoring.coreos.com/v1
		kind: PrometheusRule
		metadata:
		  name: keelson
		  namespace: keelson-system
		  labels:
		    app.kubernetes.io/name: keelson
		spec:
	EOF
	sed '/^#/d; s/^/  /' config/monitoring/alerts.yaml
} >config/monitoring/prometheusrule.yaml

echo "generate: charts/keelson"
go run ./hack/chart charts/keelson config/default config/monitoring config/access config/console

# The packages with clients, as import paths and as GROUP/VERSION.
packages=()
inputs=()
while read -r directory; do
	packages+=("$module/$directory")
	inputs+=(--input "${directory#api/}")
done < <(grep -rl --include='*.go' '^// +genclient$' api | xargs -n 1 dirname | sort -u)

# The apply configurations include their OpenAPI schema. Otherwise there would be no Extract functions,
# and the fake clientset would not support server-side apply. The packages after Keelson's are those
# that its types refer to.
echo "generate: OpenAPI schema of the types"
tool openapi-gen --output-dir "$new/openapi" --output-pkg main --output-file generated.go \
	--report-filename "$new/openapi/report" \
	"${packages[@]}" "$module/api/common/v1" \
	k8s.io/api/batch/v1 k8s.io/api/core/v1 k8s.io/api/scheduling/v1alpha3 \
	k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime \
	k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version
# Exceptions are in hack/openapi/exceptions.txt, with reasons.
if grep "$module" "$new/openapi/report" | grep -vxF "$(grep -v '^#' hack/openapi/exceptions.txt)"; then
	echo "generate: the types above break an OpenAPI rule (the lines name package, type, field)" >&2
	exit 1
fi
cp hack/openapi/main.go "$new/openapi/"
go run "$new/openapi/main.go" "$new/openapi/generated.go" >"$new/openapi.json"

# The apply configurations of Kubernetes types are in client-go.
external=()
clientgo=$(go list -m -f '{{.Dir}}' k8s.io/client-go)
for group in batch/v1 core/v1; do
	while read -r name; do
		external+=(--external-applyconfigurations "k8s.io/api/$group.$name:k8s.io/client-go/applyconfigurations/$group")
	done < <(sed -n 's/^type \([A-Za-z]*\)ApplyConfiguration struct.*/\1/p' "$clientgo/applyconfigurations/$group"/*.go | sort)
done

echo "generate: client/applyconfiguration"
tool applyconfiguration-gen --openapi-schema "$new/openapi.json" \
	"${external[@]}" \
	--output-dir "$new/client/applyconfiguration" --output-pkg "$module/client/applyconfiguration" \
	"${packages[@]}" "$module/api/common/v1"

echo "generate: client/clientset"
tool client-gen --clientset-name versioned --input-base "$module/api" "${inputs[@]}" \
	--apply-configuration-package "$module/client/applyconfiguration" \
	--output-dir "$new/client/clientset" --output-pkg "$module/client/clientset"

echo "generate: client/listers"
tool lister-gen --output-dir "$new/client/listers" --output-pkg "$module/client/listers" "${packages[@]}"

echo "generate: client/informers"
tool informer-gen \
	--versioned-clientset-package "$module/client/clientset/versioned" --listers-package "$module/client/listers" \
	--output-dir "$new/client/informers" --output-pkg "$module/client/informers" \
	"${packages[@]}"

replace client "$new/client"

echo "generate: docs/reference"
go run ./hack/reference "$new/reference"
cp docs/reference/metrics.md "$new/reference/" # its rows are kept by a test
replace docs/reference "$new/reference"
