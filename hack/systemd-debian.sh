#!/usr/bin/env bash
# Runs the units of config/systemd on Debian in QEMU: a Cluster, the API and other processes that outlive the manager must
# survive restarts, kill -9, a stop and a start of the units, and must stop cleanly when the host reboots. Without KVM it
# takes some minutes. There is no VirtualMachine, because nested QEMU would be too slow; internal/process starts all processes
# that outlive the manager in the same way.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
deadline=1h

hack/require.sh qemu-system-x86_64 mke2fs
hack/debian-image.sh bin/debian/disk.qcow2

machine=
work=$(mktemp -d)
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT

# A second disk with the programs, the units and the test.
mkdir -p "$work/files"
cp bin/keelson bin/keelson-kube "$work/files/"
cp -r config/systemd "$work/files/units"
cat >"$work/files/test" <<'END'
#!/bin/bash
exec </dev/null >/dev/ttyS1 2>&1
set -euo pipefail
fail() { echo "systemd-debian: FAILED: $*"; journalctl --no-pager --lines 40 --unit 'keelson-*'; exit 1; }
trap '[ $? = 0 ] || { echo "systemd-debian: FAILED at line $LINENO"; systemctl poweroff --force; }' EXIT
say() { echo "systemd-debian: $(cut -d " " -f 1 /proc/uptime) s: $*"; }
# until_ok WHAT COMMAND...: waits until COMMAND succeeds.
until_ok() {
	local what=$1 begin=$SECONDS told=$SECONDS
	shift
	until "$@" >/tmp/last 2>&1; do
		((SECONDS < begin + 1200)) || fail "not within 20 minutes: $what: $(cat /tmp/last)"
		if ((SECONDS >= told + 60)); then
			say "still waiting: $what: $(tail -n 1 /tmp/last) $(journalctl --no-pager --output cat --lines 3 --unit keelson-up --unit keelson-manager)"
			told=$SECONDS
		fi
		sleep 1
	done
	say "$what"
}
kubectl() { keelson-kube kubectl --request-timeout=20s --kubeconfig /var/lib/keelson/up/kubeconfig "$@"; }
# The processes that outlive the manager: all of the units except the main ones.
living() {
	cat /sys/fs/cgroup/system.slice/keelson-{up,manager}.service/cgroup.procs 2>/dev/null | sort |
		grep --invert-match --line-regexp --regexp "$(main keelson-up)" --regexp "$(main keelson-manager)" || true
}
# No process may have ended or started, except for short-lived ones of a starting manager, such as a version query.
unchanged() {
	living >/tmp/now
	[ -z "$(comm -23 /tmp/living /tmp/now)" ] || fail "$1: processes ended: $(comm -23 /tmp/living /tmp/now)"
	until_ok "$1: all $(wc -l </tmp/living) processes live on, and no other was started" same
}
same() { diff /tmp/living <(living); }
main() { systemctl show --property=MainPID --value "$1"; }
ready() { kubectl get cluster demo -o jsonpath='{.status.conditions}' && [ "$(kubectl get cluster demo -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
api() { [ "$(kubectl get --raw /readyz)" = ok ]; }
END
cat >"$work/files/first" <<'END'
. /test/test
. /etc/os-release
say "$PRETTY_NAME, $(systemctl --version | head -n 1)"
install -m 755 /test/keelson /test/keelson-kube /usr/local/bin/
install -m 644 /test/units/*.service /etc/systemd/system/
useradd --system --home-dir /var/lib/keelson --shell /usr/sbin/nologin keelson
mkdir -p /var/log/journal # so that there is one of the boot before
systemctl restart systemd-journald
mkdir -p /etc/keelson
echo 'KEELSON_UP_ARGS=--no-controllers --nodes=0' >/etc/keelson/up.env
systemd-analyze verify /etc/systemd/system/keelson-*.service
systemctl enable keelson-up keelson-manager
systemctl start keelson-up
until_ok "the API is ready" api
# An emulated API server can exceed kubectl's timeout.
definitions() { keelson manifests crds | kubectl apply --server-side -f - && keelson manifests admission | kubectl apply -f -; }
until_ok "the definitions are there" definitions
namespace() { kubectl create namespace keelson-system --dry-run=client -o yaml | kubectl apply -f -; }
until_ok "the namespace is there" namespace
install -o keelson -m 600 /var/lib/keelson/up/kubeconfig /etc/keelson/manager.kubeconfig
sed -i "s#: \(pki/\|\./\)#: /var/lib/keelson/up/\1#" /etc/keelson/manager.kubeconfig
systemctl start keelson-manager
cluster() {
	kubectl apply -f - <<YAML
apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec: {}
YAML
}
until_ok "the Cluster is there" cluster
until_ok "the Cluster is ready" ready
living >/tmp/living
[ "$(wc -l </tmp/living)" -ge 6 ] || fail "too few processes: $(living)"

for unit in keelson-manager keelson-up; do
	systemctl restart $unit
	unchanged "$unit was restarted"
	old=$(main $unit)
	kill -9 "$old"
	restarted() { [ "$(systemctl show --property=ActiveState --value $unit)" = active ] && [ "$(main $unit)" != "$old" ] && [ "$(main $unit)" != 0 ]; }
	until_ok "systemd has restarted $unit" restarted
	unchanged "$unit was killed"
	systemctl stop $unit
	unchanged "$unit was stopped"
	systemctl start $unit
	unchanged "$unit was started"
done
until_ok "the API is ready" api
until_ok "the Cluster is ready" ready
unchanged "in the end"
! journalctl --unit 'keelson-*' | grep 'has KillMode' || fail "the units have a warning about KillMode"

# systemd's default causes a warning. The change is reverted before the unit stops.
mkdir /etc/systemd/system/keelson-up.service.d
printf '[Service]\nKillMode=control-group\n' >/etc/systemd/system/keelson-up.service.d/kill.conf
systemctl stop keelson-up
systemctl daemon-reload
systemctl start keelson-up
warned() { journalctl --unit keelson-up | grep 'has KillMode=control-group'; }
until_ok "it warns about KillMode=control-group" warned
rm -r /etc/systemd/system/keelson-up.service.d
systemctl daemon-reload

cat >/etc/systemd/system/second.service <<UNIT
[Service]
ExecStartPre=/bin/mount LABEL=keelson /test
ExecStart=/bin/bash /test/second
[Install]
WantedBy=multi-user.target
UNIT
systemctl enable second
say "reboot"
systemctl reboot
END
cat >"$work/files/second" <<'END'
. /test/test
say "booted again"
journalctl --boot=-1 --no-pager --output=cat --unit keelson-manager-poweroff --unit keelson-up-poweroff --unit keelson-manager --unit keelson-up --lines 60 >/tmp/before
grep 'No machine and no cluster of /var/lib/keelson/manager runs any more' /tmp/before || fail "the Cluster was not stopped at shutdown: $(cat /tmp/before)"
grep 'The data stays in /var/lib/keelson/up' /tmp/before || fail "the API was not stopped at shutdown: $(cat /tmp/before)"
until_ok "the API is ready" api
until_ok "the Cluster is ready" ready
systemctl stop keelson-manager-poweroff keelson-up-poweroff
[ -z "$(living)" ] || fail "left after the stop of the poweroff units: $(living)"
[ "$(systemctl is-active keelson-up)" = inactive ] || fail "keelson-up is active without its poweroff unit"
say "passed"
systemctl poweroff --force
END
truncate --size 1G "$work/disk"
mke2fs -q -t ext4 -L keelson -d "$work/files" "$work/disk"

mkdir "$work/seed"
echo 'instance-id: systemd' >"$work/seed/meta-data"
printf '#!/bin/bash\nmkdir -p /test && mount LABEL=keelson /test\n. /test/first\n' >"$work/seed/user-data"

# The device alone is not enough: on some hosts it can be opened, but guests hang.
accelerator=tcg,thread=multi,tb-size=512
if [ -w /dev/kvm ] && grep --quiet --word-regexp --extended-regexp 'vmx|svm' /proc/cpuinfo; then accelerator=kvm; fi
echo "systemd-debian: booting with $accelerator; it may take up to $deadline" >&2
touch "$work/report"
timeout --kill-after 10s "$deadline" qemu-system-x86_64 -nodefaults -no-user-config -display none \
	-machine q35 -accel "$accelerator" -cpu max -smp 2 -m 3G \
	-drive "if=virtio,format=qcow2,snapshot=on,file=bin/debian/disk.qcow2" \
	-drive "if=virtio,format=raw,cache=unsafe,file=$work/disk" \
	-drive "if=virtio,format=raw,read-only=on,file.driver=vvfat,file.dir=$work/seed,file.label=CIDATA" \
	-netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net,romfile= \
	-device virtio-rng-pci -serial "file:$work/console" -serial "file:$work/report" &
machine=$!
tail --lines +1 --follow --pid "$machine" "$work/report" &
wait "$machine" || true
if ! grep --quiet --extended-regexp '^systemd-debian: .* passed.?$' "$work/report"; then # a line of a terminal ends with a return
	tail --lines 30 "$work/console" >&2
	echo "systemd-debian: FAILED, see above" >&2
	exit 1
fi
