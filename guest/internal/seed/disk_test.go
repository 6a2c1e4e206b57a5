package seed

import (
	"bytes"
	"testing"
)

// disk returns a disk with texts at places.
func disk(size int, content map[int]string) *bytes.Reader {
	d := make([]byte, size)
	for at, text := range content {
		copy(d[at:], text)
	}
	return bytes.NewReader(d)
}

func TestFilesystem(t *testing.T) {
	const volume = 16 * 2048
	tests := []struct {
		name   string
		disk   *bytes.Reader
		kind   string
		isSeed bool
	}{
		{"nothing", disk(1<<16, nil), "", false},
		{"too small", disk(100, nil), "", false},
		{"a seed as ISO 9660", disk(1<<16, map[int]string{volume: "\x01CD001", volume + 40: "cidata    "}), "iso9660", true},
		{"in capitals", disk(1<<16, map[int]string{volume: "\x01CD001", volume + 40: "CIDATA" + string(bytes.Repeat([]byte(" "), 26))}), "iso9660", true},
		{"another ISO 9660", disk(1<<16, map[int]string{volume: "\x01CD001", volume + 40: "DEBIAN"}), "iso9660", false},
		{"a seed as FAT16", disk(1<<16, map[int]string{0x26: "\x29", 0x2b: "CIDATA     FAT16   ", 510: "\x55\xaa"}), "vfat", true},
		{"a seed as FAT32", disk(1<<16, map[int]string{0x42: "\x29", 0x47: "cidata     FAT32   ", 510: "\x55\xaa"}), "vfat", true},
		{"another FAT", disk(1<<16, map[int]string{0x26: "\x29", 0x2b: "NO NAME    FAT12   ", 510: "\x55\xaa"}), "vfat", false},
		{"a disk with partitions", disk(1<<16, map[int]string{510: "\x55\xaa"}), "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind, isSeed, err := Filesystem(tt.disk)
			if err != nil {
				t.Fatal(err)
			}
			if kind != tt.kind || isSeed != tt.isSeed {
				t.Errorf("got %q, a seed: %v; want %q, %v", kind, isSeed, tt.kind, tt.isSeed)
			}
		})
	}
}
