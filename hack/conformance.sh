#!/usr/bin/env bash
# Runs end-to-end tests of Kubernetes against two real nodes: hack/conformance.sh [FLAG of ginkgo...]. Without flags: the conformance
# tests of network, storage, apps and nodes, and those of IPv6. It needs root, Debian's package archive and the programs of `make build node`; see
# docs/internals/node.md. The results are in bin/conformance/results.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
out=$PWD/bin/conformance
hack/require.sh mmdebstrap nft iptables runc

# The tests, and the image that most of them run, are packages of the same release as the components.
mkdir -p "$out"
for package in github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/agnhost; do
	(cd kube && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/" "$package")
done
(cd kube && CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o "$out/e2e.test" k8s.io/kubernetes/test/e2e)

# One root file system of Debian stands for all images: they differ in their programs only.
root=$out/root
if [ ! -e "$root/run-nginx" ]; then
	rm -rf "$root"
	mmdebstrap --quiet --variant=minbase --include=busybox-static,curl,netcat-openbsd,iproute2,bind9-dnsutils,nginx-light \
		"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root"
	rm -rf "$root"/dev/* "$root"/var/cache "$root"/var/lib/apt "$root"/usr/share/{doc,man,locale}
	for applet in $("$root/bin/busybox" --list); do
		[ -L "$root/bin/$applet" ] || [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
	done
	ln -sf bash "$root/bin/sh" # dash drops variables such as data-1, and has no $RANDOM; that of busybox runs its own nc
	mkdir "$root/uploads"
	echo 'user-defined-in-image:x:1000:1000::/:/bin/sh' >>"$root/etc/passwd"
	printf '%s\n' user-defined-in-image:x:1000: group-defined-in-image:x:50000:user-defined-in-image >>"$root/etc/group"
	ln -s agnhost "$root/agnhost-2"
	printf '#!/bin/sh\nexec /agnhost "${@:-pause}"\n' >"$root/run-agnhost"
	chmod 0755 "$root/run-agnhost"
	install -m 0755 /dev/stdin "$root/run-nginx" <<<$'#!/bin/sh\nexec nginx -g "daemon off;"' # the last file: the root is complete
fi
install -m 0755 "$out/agnhost" "$root/" # of the present release
install -m 0644 "$(cd kube && go list -f '{{.Dir}}' k8s.io/kubernetes/test/images/agnhost)"/porter/localhost.* "$root/"

data=$(mktemp -d)
trap 'bin/keelson down --data-dir "$data"; rm -rf "$data"' EXIT
bin/keelson up --data-dir "$data" --detach --node=real --nodes=2 --vm-driver=fake --console-port=-1
load() { bin/keelson node image load --data-dir "$data" --name "$1" --entrypoint "$2" "${3:-$root}"; }
mkdir -p "$out/pause"
cp bin/node/pause "$out/pause/"
for name in $("$out/e2e.test" --list-images); do
	case $name in
	*/agnhost:*) load "$name" /run-agnhost ;;
	*/busybox:* | */glibc-dns-testing:*) load "$name" /bin/sh ;;
	*/nginx:*) load "$name" /run-nginx ;;
	*/pause:*) load "$name" /pause "$out/pause" ;;
	esac
done

if [ $# = 0 ]; then
	set -- --focus='\[sig-(network|storage|apps|node)\].*(\[Conformance\]|IPv6DualStack)' --skip='\[(Serial|Disruptive|Slow)\]' \
		--skip='AllowPrivilegeEscalation should not allow privilege escalation when false' \
		--skip='SCTPConnectivity' --skip='pod and pull policy of Always' --skip='read only busybox container should not write' # see docs/internals/node.md
fi
"$out/ginkgo" --procs=4 --no-color --silence-skips --timeout=2h --output-dir="$out/results" --junit-report=junit.xml "$@" "$out/e2e.test" -- \
	--provider=skeleton --kubeconfig="$data/kubeconfig" --num-nodes=2
