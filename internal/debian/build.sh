#!/usr/bin/env bash
# Builds a Debian cloud image: build.sh FILE SUITE [PACKAGE...]. FILE becomes a qcow2 with a boot loader, a
# kernel, cloud-init with the data source NoCloud, the QEMU guest agent, an SSH server, and the packages.
# An existing FILE is left alone. `build.sh needs` prints the programs and files that a build needs.
#
# keelson vm image build runs it, and so does hack/debian-image.sh, for tests.
#
# Packages come from Debian's archive, and apt verifies their signatures. It needs neither root nor loop
# devices; without root it needs user namespaces with subordinate IDs, and names what is missing. It needs
# no other file, because it is embedded in the program.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

# The programs and files, each with its Debian package.
needs() {
	cat <<'END'
mmdebstrap mmdebstrap
/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
fakeroot fakeroot
grub-mkimage grub-common
/usr/lib/grub/i386-pc/boot.img grub-pc-bin
sfdisk fdisk
mke2fs e2fsprogs
qemu-img qemu-utils
flock util-linux
END
	[ "$(id -u)" = 0 ] || echo newuidmap uidmap
}

if [ "$1" = needs ]; then
	needs | cut -d ' ' -f 1
	exit 0
fi
out=$1 suite=$2
shift 2

say() { echo "debian: $*" >&2; }
fail() {
	say "$*"
	exit 1
}

if [ -e "$out" ]; then
	say "$out exists"
	exit 0
fi
[ "$(uname -m)" = x86_64 ] || fail "images are built for x86-64 only, on such a host"
missing=()
packages=()
while read -r need package; do
	if [ ! -e "$need" ] && ! command -v "$need" >/dev/null; then
		missing+=("$need") packages+=("$package")
	fi
done < <(needs)
[ ${#missing[@]} = 0 ] || fail "missing: ${missing[*]}. On Debian and Ubuntu: sudo apt-get install ${packages[*]}"

# Without root, use the IDs of a user namespace.
if [ "$(id -u)" != 0 ]; then
	user=$(id -un)
	for file in /etc/subuid /etc/subgid; do
		grep -qs -e "^$user:" -e "^$(id -u):" "$file" ||
			fail "$user has no IDs for a user namespace in $file. Run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user; or be root"
	done
	unshare --user true 2>/dev/null ||
		fail "this system lets only root create user namespaces (see kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces in sysctl). Allow it, or be root"
fi

# One build at a time. The lock ends with this process, even if it is killed.
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
if ! flock --nonblock 9; then
	say "another build of $out is running; waiting for it"
	flock 9
fi
[ ! -e "$out" ] || exit 0 # the other build has made it
rm -rf "$out".build.* # of builds that were killed
work=$(mktemp -d "$out.build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The packages of a cloud image beyond the minimum, including D-Bus, which the power button needs.
# cloud-init configures systemd-networkd.
include=linux-image-cloud-amd64,cloud-init,cloud-guest-utils,qemu-guest-agent,systemd-sysv,systemd-resolved,dbus,e2fsprogs
include+=,openssh-server,sudo,ca-certificates,curl,iproute2,iputils-ping,less,nano,netbase,procps,vim-tiny
include+=$(printf '%s' "${@/#/,}")
# The same in the boot loader and fstab, whatever the name of the disk is.
uuid=$(cat /proc/sys/kernel/random/uuid)
say "downloading and installing the packages of $suite, some minutes"
# cloud-init generates host keys for each instance; keys of RSA would take long in an emulated machine.
mmdebstrap --quiet --variant=minbase --include="$include" \
	--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/cloud/cloud.cfg.d"' \
	--essential-hook='echo MODULES=list >"$1/etc/initramfs-tools/conf.d/modules"' \
	--essential-hook='printf "%s\n" virtio_pci virtio_blk virtio_scsi sd_mod ext4 >"$1/etc/initramfs-tools/modules"' \
	--customize-hook='printf "%s\n" "datasource_list: [NoCloud, None]" "locale: false" "ssh_genkeytypes: [ed25519, ecdsa]" >"$1/etc/cloud/cloud.cfg.d/95_image.cfg"' \
	--customize-hook='chroot "$1" systemctl --quiet enable systemd-networkd systemd-resolved' \
	--customize-hook="echo 'UUID=$uuid / ext4 defaults 0 1' >\"\$1/etc/fstab\"" \
	--customize-hook='echo LANG=C.UTF-8 >"$1/etc/default/locale"' \
	--customize-hook='ln -sf /dev/null "$1/etc/systemd/system/apt-daily.timer"' \
	--customize-hook='ln -sf /dev/null "$1/etc/systemd/system/apt-daily-upgrade.timer"' \
	--customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' \
	--customize-hook='find "$1/usr/share/doc" "$1/usr/share/locale" "$1/usr/share/man" -type f ! -name copyright -delete' \
	--customize-hook='rm -rf "$1"/var/lib/apt/lists/*' \
	"$suite" "$work/root.tar" >&2

say "writing the file system"
# One partition, from 1 MiB; the boot loader is before it. fakeroot keeps the owners of files. cloud-init
# grows the partition and the file system to the size of the disk.
truncate --size 4G "$work/disk"
echo 'start=2048, type=83, bootable' | sfdisk --quiet --no-reread --no-tell-kernel "$work/disk"
mkdir "$work/root"
fakeroot sh -c 'tar --extract --directory "$1/root" --file "$1/root.tar" --exclude "./dev/*" &&
	mke2fs -q -t ext4 -L root -U "$2" -E offset=1048576 -d "$1/root" "$1/disk" 4193280k' sh "$work" "$uuid"

# The packages of kernels keep the links /vmlinuz and /initrd.img, so that an upgrade changes the kernel.
cat >"$work/grub.cfg" <<END
set root=(hd0,msdos1)
linux /vmlinuz root=UUID=$uuid ro console=ttyS0 quiet
initrd /initrd.img
boot
END
grub-mkimage --format i386-pc --prefix '(hd0,msdos1)/boot/grub' --config "$work/grub.cfg" --output "$work/core" \
	biosdisk part_msdos ext2 linux normal
dd if=/usr/lib/grub/i386-pc/boot.img of="$work/disk" bs=446 count=1 conv=notrunc status=none
dd if="$work/core" of="$work/disk" bs=512 seek=1 conv=notrunc status=none

qemu-img convert -f raw -O qcow2 "$work/disk" "$work/image"
sync "$work/image"
mv "$work/image" "$out"
say "built $out, $(du --human-readable "$out" | cut -f 1)"
