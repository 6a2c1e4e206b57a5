package rootdisk

import (
	"bytes"
	"testing"
)

func TestInspect(t *testing.T) {
	const size = 1 << 20
	zero := func() []byte { return make([]byte, size) }
	with := func(at int, text string) []byte {
		disk := zero()
		copy(disk[at:], text)
		return disk
	}
	ext4 := func(label string) []byte {
		disk := with(1024+0x38, "\x53\xef")
		copy(disk[1024+0x78:], label)
		return disk
	}
	for _, test := range []struct {
		name string
		disk []byte
		want content
	}{
		{"empty", zero(), unformatted},
		{"the rest of an interrupted mke2fs", with(300<<10, "inodes"), unformatted},
		{"of a guest", ext4("keelson-root"), formatted},
		{"ext4 of somebody else", ext4("data"), foreign},
		{"ext4 whose label begins like ours", ext4("keelson-root2"), foreign},
		{"a partition table", with(510, "\x55\xaa"), foreign},
		{"the end of a RAID", with(size-4096, "md"), foreign},
		{"smaller than a superblock", []byte("x"), foreign},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := inspect(bytes.NewReader(test.disk), int64(len(test.disk)))
			if got != test.want || err != nil {
				t.Errorf("got %d, %v, want %d", got, err, test.want)
			}
		})
	}
}
