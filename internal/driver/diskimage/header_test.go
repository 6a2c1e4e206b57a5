package diskimage

import (
	"encoding/binary"
	"errors"
	"testing"
)

// The first bytes of an image determine its format, and no file that it names is opened.
func TestExamine(t *testing.T) {
	header := func(version uint32, backing, features uint64) []byte {
		begin := make([]byte, 112)
		binary.BigEndian.PutUint32(begin, Qcow2Magic)
		binary.BigEndian.PutUint32(begin[4:], version)
		binary.BigEndian.PutUint64(begin[8:], backing)
		binary.BigEndian.PutUint64(begin[72:], features)
		return begin
	}
	at64 := append(make([]byte, 64), "\x7f\x10\xda\xbe"...)
	for _, test := range []struct {
		name     string
		begin    []byte
		declared string
		want     string
		err      error
	}{
		{"empty file", nil, "", Raw, nil},
		{"disk with a boot sector", []byte("\xeb\x63\x90"), "", Raw, nil},
		{"version 3", header(3, 0, 0), "", Qcow2, nil},
		{"version 3 as declared", header(3, 0, 0), Qcow2, Qcow2, nil},
		{"version 2 without feature bits", header(2, 0, externalData)[:80], "", Qcow2, nil},
		{"irrelevant feature bit", header(3, 0, 1), "", Qcow2, nil},
		{"cut off", header(3, 0, 0)[:8], "", Qcow2, nil},
		{"declared but not true", []byte("MZ"), Qcow2, Qcow2, nil},
		{"version 1", header(1, 0, 0), "", "", errOtherFormat},
		{"a backing file", header(2, 200, 0), "", "", ErrOtherFile},
		{"backing file in a declared qcow2", header(3, 200, 0), Qcow2, "", ErrOtherFile},
		{"qcow2 with a backing file, declared as raw", header(3, 200, 0), Raw, Raw, nil},
		{"external data file", header(3, 0, externalData), "", "", ErrOtherFile},
		{"external data file among other features", header(3, 0, externalData|1|8), "", "", ErrOtherFile},
		{"VMware descriptor", []byte("# Disk DescriptorFile\nRW 1 FLAT \"/etc/shadow\" 0\n"), "", "", errOtherFormat},
		{"signature at an offset", at64, "", "", errOtherFormat},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := examineBegin(test.begin, test.declared)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}
