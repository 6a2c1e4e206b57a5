#!/usr/bin/env bash
# Builds the files of the image of the launcher into a folder: hack/launcher-image.sh FOLDER [LIST]. It has the program keelson-launcher,
# QEMU of this distribution with its libraries, the certificates of authorities, and nothing else. The file LIST gets the distribution, name
# and version of each package that they are from, which needs dpkg. `make launcher` calls it; see docs/drivers.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
folder=$1 list=${2:-}
out=$folder.new # a folder that is there is complete

programs=(qemu-system-x86_64 qemu-img)
for program in "${programs[@]}"; do
	if ! command -v "$program" >/dev/null; then
		echo "Missing: $program. On Debian and Ubuntu: apt-get install --no-install-recommends qemu-system-x86 qemu-utils" >&2
		exit 1
	fi
done

# firmware prints the path of a file of QEMU's firmware. Its VNC server needs a keymap.
firmware() {
	for folder in /usr/share/qemu /usr/share/seabios /usr/share/qemu-firmware; do
		if [ -f "$folder/$1" ]; then
			echo "$folder/$1"
			return
		fi
	done
	echo "Missing: the firmware $1. On Debian and Ubuntu: apt-get install --no-install-recommends qemu-system-x86" >&2
	return 1
}

# authorities prints the path of the certificates of this distribution, for images from https addresses.
authorities() {
	for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
		if [ -f "$file" ]; then
			echo "$file"
			return
		fi
	done
	echo "Missing: the certificates of authorities. On Debian and Ubuntu: apt-get install --no-install-recommends ca-certificates" >&2
	return 1
}

# libraries prints the libraries of programs with their paths.
libraries() { ldd "$@" | sed -nE 's/^[^/]*(\/[^ ]+) \(0x.*/\1/p' | sort -u; }

rm -rf "$out"
mkdir -p "$out/usr/bin" "$out/usr/share/qemu" "$out/tmp"
# No paths, no version control, no build machine: the same bytes everywhere.
GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -buildid=' -o "$out/keelson-launcher" ./cmd/keelson-launcher
chmod 0555 "$out/keelson-launcher"
files=()
for program in "${programs[@]}"; do
	path=$(readlink -f "$(command -v "$program")")
	install -m 0555 "$path" "$out/usr/bin/$program"
	files+=("$path")
done
# Debian's QEMU has the emulation in a module, that of other distributions is part of the program.
module=$(find /usr/lib /usr/lib64 -name accel-tcg-x86_64.so -path '*qemu*' 2>/dev/null | head -n 1 || true)
if [ -n "$module" ]; then
	install -D -m 0444 "$module" "$out$module"
	files+=("$module")
fi
for library in $(libraries "${files[@]}"); do
	path=$(readlink -f "$library")
	install -D -m 0555 "$path" "$out$library"
	files+=("$path")
done
for name in bios-256k.bin pvh.bin kvmvapic.bin linuxboot_dma.bin vgabios-stdvga.bin keymaps/en-us; do
	path=$(readlink -f "$(firmware "$name")")
	install -D -m 0444 "$path" "$out/usr/share/qemu/$name"
	files+=("$path")
done
install -D -m 0444 "$(authorities)" "$out/etc/ssl/certs/ca-certificates.crt"
# The same files give the same bytes: nothing depends on the time of the build.
find "$out" -exec touch --no-dereference --date=@0 {} +
rm -rf "$folder"
mv "$out" "$folder"

# package prints the package of a file. dpkg knows some files by their paths without /usr.
package() { { dpkg -S "$1" || dpkg -S "${1#/usr}"; } 2>/dev/null | sed 's/[:,].*//;q'; }

if [ -n "$list" ]; then
	if ! command -v dpkg >/dev/null; then
		echo "Missing: dpkg. The list of packages of a release needs Debian or Ubuntu" >&2
		exit 1
	fi
	distribution=$(. /etc/os-release && echo "$ID")
	packages=(ca-certificates)
	for file in "${files[@]}"; do
		found=$(package "$file" || true)
		if [ -z "$found" ]; then
			echo "$file is of no package, so the bill of materials would lack it" >&2
			exit 1
		fi
		packages+=("$found")
	done
	printf '%s\n' "${packages[@]}" | sort -u | xargs dpkg-query --show --showformat="$distribution \${Package} \${Version}\\n" | sort -u >"$list"
fi
