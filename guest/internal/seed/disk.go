package seed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Label is the label of the file system with the seed, in whatever case.
const Label = "cidata"

// Filesystem says what kind of file system a disk has, "iso9660" or "vfat", and
// whether it is labelled as a seed. Anything else is "".
func Filesystem(disk io.ReaderAt) (kind string, isSeed bool, err error) {
	// ECMA-119, 8.4: the primary volume descriptor is in sector 16 of 2048 bytes.
	const descriptor, name, nameLength = 16 * 2048, 40, 32
	volume := make([]byte, name+nameLength)
	switch _, err := disk.ReadAt(volume, descriptor); {
	case err == nil && volume[0] == 1 && string(volume[1:6]) == "CD001":
		return "iso9660", isLabel(volume[name:]), nil
	case err != nil && !errors.Is(err, io.EOF):
		return "", false, err
	}
	boot := make([]byte, 512)
	if _, err := disk.ReadAt(boot, 0); err != nil {
		if errors.Is(err, io.EOF) {
			return "", false, nil // too small to be anything
		}
		return "", false, err
	}
	if binary.LittleEndian.Uint16(boot[510:]) != 0xaa55 {
		return "", false, nil
	}
	// Where FAT12 and FAT16 have the label, and where FAT32 has it; before it is a
	// signature and a serial number, behind it the kind.
	for _, at := range []int{0x2b, 0x47} {
		if boot[at-5] == 0x29 && bytes.HasPrefix(boot[at+11:], []byte("FAT")) {
			return "vfat", isLabel(boot[at : at+11]), nil
		}
	}
	return "", false, nil
}

func isLabel(field []byte) bool {
	return strings.EqualFold(strings.TrimRight(string(field), " \x00"), Label)
}
