#!/usr/bin/env bash
# Builds a Debian cloud image: hack/debian-image.sh FILE [PACKAGE...]. It is a qcow2 with a boot
# loader, a kernel, cloud-init with the data source NoCloud, the QEMU guest agent, and the
# packages. The tests of the driver qemu and hack/node-debian.sh boot it.
# KEELSON_DEBIAN_SUITE=trixie selects Debian 13, whatever this host runs.
#
# Packages come from Debian's archive, and apt verifies their signatures. It needs neither root nor
# loop devices; without root it needs user namespaces with subordinate IDs, and names what is
# missing. A build takes some minutes, so the image is cached by its inputs;
# KEELSON_DEBIAN_UPDATE=1 rebuilds it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
out=$1
shift

# Default to the suite of this host if it is Debian: its archive is configured and close.
host=$(. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}" || true)
suite=${KEELSON_DEBIAN_SUITE:-${host:-bookworm}}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/debian-image
name=$(basename "$out" .qcow2)
image=$cache/$name-$suite-$({ cat "$0" && echo "$@"; } | sha256sum | cut -c 1-16).qcow2

# publish: copies the image from the cache to FILE.
publish() {
	mkdir -p "$(dirname "$out")"
	ln -sfn "$image" "$out"
}

if [ "${KEELSON_DEBIAN_UPDATE:-}" != 1 ] && [ -e "$image" ]; then
	publish
	exit 0
fi
# Without root, use the IDs of a user namespace.
if [ "$(id -u)" != 0 ]; then
	hack/require.sh newuidmap
	user=$(id -un)
	for file in /etc/subuid /etc/subgid; do
		if ! grep -qs -e "^$user:" -e "^$(id -u):" "$file"; then
			echo "debian: $user has no ids for a user namespace in $file. Type: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user; or be root" >&2
			exit 1
		fi
	done
	if ! unshare --user true 2>/dev/null; then
		echo "debian: this system lets only root make user namespaces (see kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces in sysctl). Allow it, or be root" >&2
		exit 1
	fi
fi
hack/require.sh mmdebstrap fakeroot grub-mkimage /usr/lib/grub/i386-pc/boot.img sfdisk mke2fs qemu-img

echo "debian: building an image of $suite in $cache, some minutes" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The packages of a cloud image beyond the minimum, including D-Bus, which the power button needs,
# but without any that only slow down an emulated boot. cloud-init configures systemd-networkd.
packages=linux-image-cloud-amd64,cloud-init,qemu-guest-agent,systemd-sysv,dbus,e2fsprogs,iproute2$(printf '%s' "${@/#/,}")
mmdebstrap --quiet --variant=minbase --include="$packages" \
	--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/cloud/cloud.cfg.d"' \
	--essential-hook='echo MODULES=list >"$1/etc/initramfs-tools/conf.d/modules"' \
	--essential-hook='printf "%s\n" virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"' \
	--customize-hook='printf "%s\n" "datasource_list: [NoCloud, None]" "locale: false" "ssh_genkeytypes: []" >"$1/etc/cloud/cloud.cfg.d/95_image.cfg"' \
	--customize-hook='chroot "$1" systemctl --quiet enable systemd-networkd' \
	--customize-hook='echo "/dev/vda1 / ext4 defaults 0 1" >"$1/etc/fstab"' \
	--customize-hook='ln -sf /dev/null "$1/etc/systemd/system/apt-daily.timer"' \
	--customize-hook='ln -sf /dev/null "$1/etc/systemd/system/apt-daily-upgrade.timer"' \
	--customize-hook='rm -rf "$1"/usr/share/doc/* "$1"/usr/share/locale/* "$1"/var/lib/apt/lists/*' \
	"$suite" "$work/root.tar" >&2

# One partition, from 1 MiB; the boot loader is before it. fakeroot keeps the owners of files.
truncate --size 2G "$work/disk"
echo 'start=2048, type=83, bootable' | sfdisk --quiet --no-reread --no-tell-kernel "$work/disk"
mkdir "$work/root"
fakeroot sh -c 'tar --extract --directory "$1/root" --file "$1/root.tar" --exclude "./dev/*" &&
	mke2fs -q -t ext4 -L root -E offset=1048576 -d "$1/root" "$1/disk" 2096128k' sh "$work"

cat >"$work/grub.cfg" <<'END'
set root=(hd0,msdos1)
linux /vmlinuz root=/dev/vda1 ro console=ttyS0 quiet
initrd /initrd.img
boot
END
grub-mkimage --format i386-pc --prefix '(hd0,msdos1)/boot/grub' --config "$work/grub.cfg" --output "$work/core" \
	biosdisk part_msdos ext2 linux normal
dd if=/usr/lib/grub/i386-pc/boot.img of="$work/disk" bs=446 count=1 conv=notrunc status=none
dd if="$work/core" of="$work/disk" bs=512 seek=1 conv=notrunc status=none

qemu-img convert -f raw -O qcow2 "$work/disk" "$work/image"
rm -f "$cache/$name"-*.qcow2
mv "$work/image" "$image"
publish
