#!/usr/bin/env bash
# Installs missing commands or files: `hack/require.sh gcc openssl`. It uses the system's package manager,
# after a message. Where that is forbidden (KEELSON_NO_INSTALL=1) or impossible, it fails and prints the
# command to run. It never prompts.
set -euo pipefail

packages=()
missing=()
for command in "$@"; do
	if [ -f "$command" ] || command -v "$command" >/dev/null; then continue; fi
	missing+=("$command")
	case $command in
	gcc) packages+=(gcc libc6-dev) ;;
	qemu-system-x86_64) packages+=(qemu-system-x86) ;;
	dockerd) packages+=(docker.io) ;;
	systemd-analyze) packages+=(systemd) ;;
	node) packages+=(nodejs) ;;
	qemu-img) packages+=(qemu-utils) ;;
	*/debian-archive-keyring.gpg) packages+=(debian-archive-keyring) ;;
	/usr/share/OVMF/*) packages+=(ovmf) ;;
	grub-mkimage) packages+=(grub-common) ;;
	/usr/lib/grub/i386-pc/*) packages+=(grub-pc-bin) ;;
	newuidmap) packages+=(uidmap) ;;
	ssh | ssh-keygen) packages+=(openssh-client) ;;
	nft) packages+=(nftables) ;;
	sfdisk) packages+=(fdisk) ;;
	mke2fs) packages+=(e2fsprogs) ;;
	pkill) packages+=(procps) ;;
	*) packages+=("$command") ;;
	esac
done
[ ${#missing[@]} != 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "Missing: ${missing[*]}. Install it with the package manager of this system, then try again." >&2
	exit 1
fi
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo -n)
install=("${sudo[@]+"${sudo[@]}"}" apt-get install --yes --no-install-recommends "${packages[@]}")
if [ "${KEELSON_NO_INSTALL:-}" = 1 ]; then
	echo "Missing: ${missing[*]}. Because of KEELSON_NO_INSTALL=1 it was not installed; run: ${install[*]}" >&2
	exit 1
fi
if [ "${#sudo[@]}" != 0 ] && ! sudo -n true 2>/dev/null; then
	echo "Missing: ${missing[*]}. Type: ${install[*]/-n/}" >&2
	exit 1
fi
echo "Missing: ${missing[*]}. Installing: ${install[*]}" >&2
"${sudo[@]+"${sudo[@]}"}" apt-get update --quiet=2
DEBIAN_FRONTEND=noninteractive "${install[@]}" >&2
