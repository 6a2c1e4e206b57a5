#!/usr/bin/env bash
# Prints two lines: the kernel that the guest boots, and the folder of its modules.
#
# KEELSON_GUEST_KERNEL names a kernel (a bzImage), KEELSON_GUEST_MODULES the folder of
# its modules, which is /lib/modules/RELEASE if it is not said (the empty second line).
# Otherwise it is the distribution's cloud kernel: the package is fetched with the
# distribution's own tools, which check its signature, and unpacked into a cache, not
# installed. What is in the cache already is used, unless KEELSON_GUEST_UPDATE=1.
set -euo pipefail

if [ -n "${KEELSON_GUEST_KERNEL:-}" ]; then
	if [ ! -r "$KEELSON_GUEST_KERNEL" ]; then
		echo "guest: KEELSON_GUEST_KERNEL=$KEELSON_GUEST_KERNEL cannot be read" >&2
		exit 1
	fi
	printf '%s\n%s\n' "$KEELSON_GUEST_KERNEL" "${KEELSON_GUEST_MODULES:-}"
	exit 0
fi

package=linux-image-cloud-amd64
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keelson/guest-kernel

# found: prints the newest kernel of the cache.
found() {
	local kernel
	kernel=$(find "$cache" -mindepth 3 -maxdepth 3 -path '*/boot/vmlinuz-*' 2>/dev/null | sort -V | tail -n 1)
	[ -n "$kernel" ] || return 1
	printf '%s\n%s\n' "$kernel" "${kernel%/boot/*}/lib/modules/${kernel##*/vmlinuz-}"
}

if [ "${KEELSON_GUEST_UPDATE:-}" != 1 ] && found; then exit 0; fi

for command in apt-get apt-cache dpkg-deb; do
	command -v "$command" >/dev/null && continue
	echo "guest: this system has no $command to fetch Debian's cloud kernel with. Name a kernel that has virtio" >&2
	echo "and its modules: make guest KEELSON_GUEST_KERNEL=/boot/vmlinuz-\$(uname -r)" >&2
	exit 1
done

# The package of that name has nothing but a dependency on the current kernel.
current() { apt-cache depends "$package" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1; }

kernel=$(current)
if [ -z "$kernel" ]; then
	sudo=()
	[ "$(id -u)" = 0 ] || sudo=(sudo -n)
	update=("${sudo[@]+"${sudo[@]}"}" apt-get update)
	if [ "${KEELSON_NO_INSTALL:-}" = 1 ] || { [ "${#sudo[@]}" != 0 ] && ! sudo -n true 2>/dev/null; }; then
		echo "guest: apt does not know $package yet; type: ${update[*]/-n/}" >&2
		exit 1
	fi
	echo "guest: apt does not know $package yet; running: ${update[*]}" >&2
	"${update[@]}" --quiet=2 >&2
	kernel=$(current)
fi
if [ -z "$kernel" ]; then
	echo "guest: apt has no package $package. Name a kernel that has virtio and its modules:" >&2
	echo "make guest KEELSON_GUEST_KERNEL=/boot/vmlinuz-\$(uname -r)" >&2
	exit 1
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "guest: fetching $kernel (about 27 MB) into $cache; it is not installed" >&2
# As root, apt would download as a user of its own, who may not write here, warn, and do it as root all the same.
(cd "$work" && apt-get -o APT::Sandbox::User=root download --quiet=2 "$kernel" >&2)
archive=$(find "$work" -name '*.deb')
name=$(basename "$archive" .deb)
dpkg-deb --extract "$archive" "$work/unpacked"
# Debian moves the modules to /usr/lib.
if [ -d "$work/unpacked/usr/lib/modules" ] && [ ! -e "$work/unpacked/lib/modules" ]; then
	mkdir -p "$work/unpacked/lib"
	ln -s ../usr/lib/modules "$work/unpacked/lib/modules"
fi
rm -rf "${cache:?}/$name"
mv "$work/unpacked" "$cache/$name"
found
