package boot

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// sector is the size of a sector of ISO 9660, in bytes.
const sector = 2048

// seedISO returns a file system in the format ISO 9660 (ECMA-119) with the label
// cidata and the files in its root. It is the least that Linux mounts.
func seedISO(files map[string]string) []byte {
	const volume, terminator, pathTable, root, firstFile = 16, 17, 18, 19, 20
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	image := make([]byte, firstFile*sector)
	self := record(root, sector, 2, "\x00")
	directory := slices.Concat(self, record(root, sector, 2, "\x01"))
	for _, name := range names {
		content := []byte(files[name])
		at := len(image) / sector
		// Linux shows a name in capitals and with ;1 in small letters and without.
		directory = append(directory, record(at, len(content), 0, strings.ToUpper(name)+".;1")...)
		image = append(image, content...)
		image = append(image, make([]byte, -len(image)&(sector-1))...)
	}
	copy(image[root*sector:], directory)

	v := image[volume*sector:]
	copy(v, "\x01CD001\x01")
	copy(v[8:], bytes.Repeat([]byte(" "), 64))
	copy(v[40:], "cidata")
	copy(v[80:], both32(len(image)/sector))
	copy(v[120:], both16(1))
	copy(v[124:], both16(1))
	copy(v[128:], both16(sector))
	copy(v[132:], both32(10))
	binary.LittleEndian.PutUint32(v[140:], pathTable)
	copy(v[156:], self)
	copy(v[190:], bytes.Repeat([]byte(" "), 623))
	v[881] = 1
	copy(image[terminator*sector:], "\xffCD001\x01")
	p := image[pathTable*sector:]
	p[0], p[6] = 1, 1
	binary.LittleEndian.PutUint32(p[2:], root)
	return image
}

// record is an entry of a directory.
func record(at, size int, flags byte, name string) []byte {
	length := 33 + len(name)
	length += length & 1
	r := make([]byte, length)
	r[0] = byte(length)
	copy(r[2:], both32(at))
	copy(r[10:], both32(size))
	r[25] = flags
	copy(r[28:], both16(1))
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}

// both16 and both32 are numbers in both byte orders.
func both16(n int) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(n)), uint16(n))
}

func both32(n int) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), uint32(n))
}
