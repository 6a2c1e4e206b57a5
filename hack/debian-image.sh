#!/usr/bin/env bash
# Builds a Debian as clouds have it: hack/debian-image.sh FILE [PACKAGE...]. It is a qcow2
# with a boot loader, its own kernel, cloud-init, which looks for a NoCloud seed, the QEMU
# guest agent, and the packages. The tests of the driver qemu boot it, and hack/node-debian.sh.
# KEELSON_DEBIAN_SUITE=trixie makes it a Debian 13, whatever this host is.
#
# Packages come from Debian's archive, and mmdebstrap has apt check their signatures.
# Neither root nor loop devices are needed; without root, user namespaces with ids of
# their own are, and it says which of that is missing. It takes some minutes, so the result is kept
# in a cache by what it is made from; KEELSON_DEBIAN_UPDATE=1 makes it anew.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
out=$1
shift

# That of this host if that is a Debian, so that its archive is near and known.
host=$(. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}" || true)
suite=${KEELSON_DEBIAN_SUITE:-${host:-bookworm}}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/debian-image
name=$(basename "$out" .qcow2)
image=$cache/$name-$suite-$({ cat "$0" && echo "$@"; } | sha256sum | cut -c 1-16).qcow2

# publish: makes the image of the cache the result.
publish() {
	mkdir -p "$(dirname "$out")"
	ln -sfn "$image" "$out"
}

if [ "${KEELSON_DEBIAN_UPDATE:-}" != 1 ] && [ -e "$image" ]; then
	publish
	exit 0
fi
# Who is not root gets user ids of a namespace.
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

# What cloud images have beyond the least, with a bus, which the power button needs, and
# without what would only make an emulated boot longer. cloud-init configures the
# network of systemd-networkd.
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

# One partition from 1 MiB on; the boot loader is in front of it. fakeroot keeps the
# owners of files.
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
