#!/usr/bin/env bash
# Runs the tests of a real node on a Debian 13 in QEMU: as a user without root, as root with runc, and as root with crun.
# hack/node-debian.sh [TESTS], where TESTS, as in go test -run, replaces those without root and those with runc. It covers features that CI machines may
# lack: cgroups v2, systemd, a distribution's kernel, and nft without iptables. Without KVM it is emulated
# and takes about half an hour: then tests have longer timeouts (KEELSON_TEST_TIMEOUT, 10m by default).
# The whole run has a deadline.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
runc_tests=${1:-'^TestLongNode$/^(it is ready|images are loaded|a Pod|limits|a limit|the containers of a Foo|the Job of a CronTab|down leaves)'}
user_tests=${1:-'^TestLongNode$/^(it is ready|images are loaded|an image is pulled|a Pod runs|a Pod reaches the API|a Pod reaches other|limits|a limit|the containers of a Foo|kubelet killed|everything killed|down leaves)'}
crun_tests=${1:-'^TestLongNode$/^(it is ready|images are loaded|a Pod runs|limits|a limit|down leaves)'} # what crun takes part in
deadline=2h

hack/require.sh qemu-system-x86_64 mke2fs
KEELSON_DEBIAN_SUITE=trixie hack/debian-image.sh bin/debian/node.qcow2 runc crun nftables uidmap libpam-systemd dbus-user-session

machine=
work=$(mktemp -d)
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT

# A second disk with the programs and the tests, and room for the data of the node.
mkdir -p "$work/files/apps" "$work/files/tmp" "$work/files/bin"
cp -a bin/keelson bin/keelson-kube bin/kubectl bin/node "$work/files/bin/"
CGO_ENABLED=0 go test -c -o "$work/files/node.test" ./test/e2e/node
for version in v1 v2 laid; do
	CGO_ENABLED=0 go build -ldflags "-s -w -X main.version=$version" -o "$work/files/apps/app-$version" ./test/e2e/node/app
done
truncate --size 6G "$work/disk"
mke2fs -q -t ext4 -L keelson -d "$work/files" "$work/disk"

# cloud-init runs this at the end of the boot. Tests look for the programs relative to their sources.
mkdir "$work/seed"
echo 'instance-id: node' >"$work/seed/meta-data"
{
	echo '#!/bin/bash'
	printf 'repository=%q waitTimeout=%q runc=%q crun=%q user=%q\n' "$PWD" "${KEELSON_TEST_TIMEOUT:-10m}" "$runc_tests" "$crun_tests" "$user_tests"
	cat <<'END'
exec </dev/null >/dev/ttyS1 2>&1
set -euo pipefail
trap 'echo "node-debian: exit code $?"; systemctl poweroff --force' EXIT
mkdir -p /test "$repository/bin"
mount LABEL=keelson /test
mount --bind /test/bin "$repository/bin"
export HOME=/root TMPDIR=/test/tmp PATH=$PATH:$repository/bin KEELSON_TEST_APPS=/test/apps KEELSON_TEST_TIMEOUT=$waitTimeout
grep PRETTY_NAME /etc/os-release
uname -srv
[ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ]
if command -v iptables; then exit 1; fi

# check TESTS [COMMAND...]: runs tests by a command, all of which must run and pass.
check() {
	"${@:2}" /test/node.test -test.v -test.timeout 0 -test.run "$1" | tee /test/log
	if grep -e '--- SKIP' -e 'no tests to run' /test/log; then exit 1; fi
}

# A new user lacks what the preflight names, and has it after its commands.
useradd --create-home ada
install -d -o ada /test/ada
chmod -R go+rX "$repository/bin" /test/apps
folder=$repository
while [ "$folder" != / ]; do
	chmod go+x "$folder" # such as /root
	folder=$(dirname "$folder")
done
as_ada() { runuser -u ada -- env HOME=/home/ada TMPDIR=/test/ada "$@"; }
# mend PATTERN: runs the command that the preflight names for what is missing.
mend() {
	if as_ada keelson up --node=real >/test/log 2>&1; then exit 1; fi
	cat /test/log
	command=$(sed -n "s/.*$1[^\`;]*(\`\([^\`]*\)\`.*/\1/p" /test/log)
	[ -n "$command" ]
	eval "${command//sudo /}"
}
cd /
mend 'systemd manager'
until [ -e "/run/user/$(id -u ada)/systemd/private" ]; do sleep 1; done
mend 'cgroup controllers'
systemctl daemon-reload && systemctl restart "user@$(id -u ada)" # instead of a reboot
check "$user" as_ada
echo "node-debian: passed without root"

for runtime in runc crun; do
	$runtime --version
	check "${!runtime}"
	echo "node-debian: passed with $runtime"
	rm -f "$(command -v runc)" # the next one finds crun alone
done
echo "node-debian: passed"
END
} >"$work/seed/user-data"

# The device alone is not enough: on some hosts it can be opened, but guests hang.
accelerator=tcg,thread=multi,tb-size=512
if [ -w /dev/kvm ] && grep --quiet --word-regexp --extended-regexp 'vmx|svm' /proc/cpuinfo; then accelerator=kvm; fi
echo "node-debian: booting with $accelerator; it may take up to $deadline" >&2
touch "$work/report"
timeout --kill-after 10s "$deadline" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
	-machine q35 -accel "$accelerator" -cpu max -smp 2 -m 4G \
	-drive "if=virtio,format=qcow2,snapshot=on,file=bin/debian/node.qcow2" \
	-drive "if=virtio,format=raw,cache=unsafe,file=$work/disk" \
	-drive "if=virtio,format=raw,read-only=on,file.driver=vvfat,file.dir=$work/seed,file.label=CIDATA" \
	-netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net,romfile= \
	-device virtio-rng-pci -serial "file:$work/console" -serial "file:$work/report" &
machine=$!
tail --lines +1 --follow --pid "$machine" "$work/report" &
wait "$machine" || true
if ! grep --quiet --extended-regexp '^node-debian: passed.?$' "$work/report"; then # a line of a terminal ends with a return
	tail --lines 30 "$work/console" >&2
	echo "node-debian: FAILED, see above" >&2
	exit 1
fi
