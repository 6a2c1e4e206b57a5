#!/usr/bin/env bash
# Prints three lines: the kernel of the guest, the folder of its modules, and the folder of its
# programs.
#
# KEELSON_GUEST_KERNEL names a kernel (a bzImage), KEELSON_GUEST_MODULES the folder of its modules;
# empty means /lib/modules/RELEASE. KEELSON_GUEST_PROGRAMS names the root of a file system with a
# static busybox and e2fsprogs, such as /. The rest comes from Debian packages: apt downloads them
# and verifies their signatures, and they are unpacked into a cache, not installed.
# KEELSON_GUEST_UPDATE=1 updates the cache.
set -euo pipefail

kernel_package=linux-image-cloud-amd64
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson
hint="Name your own: make guest KEELSON_GUEST_KERNEL=/boot/vmlinuz-\$(uname -r) KEELSON_GUEST_PROGRAMS=/"

# The current names of the packages in apt; empty if apt lacks them.
kernel_packages() { apt-cache depends "$kernel_package" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1; }
program_packages() {
	apt-cache show busybox-static e2fsprogs >/dev/null 2>&1 || return 0
	echo busybox-static e2fsprogs
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances e2fsprogs |
		sed -n 's/^\(lib[^ :]*\)$/\1/p' | sort -u
}

# newest FOLDER: prints the newest folder of the cache, if there is one.
newest() { find "$cache/$1" -mindepth 1 -maxdepth 1 -not -name '.*' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-; }

# fetch FOLDER PACKAGES: downloads and unpacks the packages that the function PACKAGES prints, and
# prints the folder.
fetch() {
	local folder=$1 list=$2 command packages work name
	if [ "${KEELSON_GUEST_UPDATE:-}" != 1 ] && [ -n "$(newest "$folder")" ]; then
		newest "$folder"
		return
	fi
	for command in apt-get apt-cache dpkg-deb; do
		command -v "$command" >/dev/null && continue
		printf 'guest: this system has no %s to fetch packages of Debian with.\n%s\n' "$command" "$hint" >&2
		return 1
	done
	packages=$("$list")
	if [ -z "$packages" ]; then
		update_lists
		packages=$("$list")
	fi
	if [ -z "$packages" ]; then
		printf 'guest: apt does not have the packages.\n%s\n' "$hint" >&2
		return 1
	fi
	mkdir -p "$cache/$folder"
	work=$(mktemp -d "$cache/$folder/.new.XXXXXX")
	# shellcheck disable=SC2064 # the folder of now
	trap "rm -rf '$work'" EXIT
	echo "guest: fetching" $packages "into $cache/$folder; nothing is installed" >&2
	# As root, apt would download as its own user, which has no access here. shellcheck
	# disable=SC2086 # one word a package
	(cd "$work" && apt-get -o APT::Sandbox::User=root download --quiet=2 $packages >&2)
	name=$(cd "$work" && ls -- *.deb | sha256sum | head -c 16)
	[ "$list" != kernel_packages ] || name=$(basename "$work"/*.deb .deb)
	for archive in "$work"/*.deb; do dpkg-deb --extract "$archive" "$work/unpacked"; done
	rm -rf "${cache:?}/$folder/$name"
	mv "$work/unpacked" "$cache/$folder/$name"
	touch "$cache/$folder/$name"
	echo "$cache/$folder/$name"
}

# update_lists runs apt-get update.
update_lists() {
	local sudo=() update
	[ "$(id -u)" = 0 ] || sudo=(sudo -n)
	update=("${sudo[@]+"${sudo[@]}"}" apt-get update)
	if [ "${KEELSON_NO_INSTALL:-}" = 1 ] || { [ "${#sudo[@]}" != 0 ] && ! sudo -n true 2>/dev/null; }; then
		echo "guest: apt does not know the packages yet; run: ${update[*]/-n/}" >&2
		return 1
	fi
	echo "guest: apt does not know the packages yet; running: ${update[*]}" >&2
	"${update[@]}" --quiet=2 >&2
}

if [ -n "${KEELSON_GUEST_KERNEL:-}" ]; then
	if [ ! -r "$KEELSON_GUEST_KERNEL" ]; then
		echo "guest: KEELSON_GUEST_KERNEL=$KEELSON_GUEST_KERNEL cannot be read" >&2
		exit 1
	fi
	printf '%s\n%s\n' "$KEELSON_GUEST_KERNEL" "${KEELSON_GUEST_MODULES:-}"
else
	root=$(fetch guest-kernel kernel_packages)
	kernel=$(find "$root/boot" -name 'vmlinuz-*' | sort -V | tail -n 1)
	modules=$root/lib/modules
	[ -d "$modules" ] || modules=$root/usr/lib/modules # Debian 13
	printf '%s\n%s\n' "$kernel" "$modules/${kernel##*/vmlinuz-}"
fi
if [ -n "${KEELSON_GUEST_PROGRAMS:-}" ]; then
	echo "$KEELSON_GUEST_PROGRAMS"
else
	fetch guest-programs program_packages
fi
