package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Unpack returns the kernel that is compressed inside a bzImage, if machines can start
// it directly, by its PVH entry. That saves each of them the time and the memory of
// unpacking it, and they can share its pages. The price is that the kernel's address
// is not random, which the unpacking program would see to.
//
// What cannot be started directly, or is compressed in a way that is not known here,
// is returned as it is.
func Unpack(kernel []byte) []byte {
	unpacked, err := payload(kernel)
	if err != nil || !hasPVHEntry(unpacked) {
		return kernel
	}
	return unpacked
}

// payload finds and decompresses the kernel proper. The format is in
// Documentation/arch/x86/boot.rst of the kernel.
func payload(kernel []byte) ([]byte, error) {
	const setupSectors, version, offset, length = 0x1f1, 0x206, 0x248, 0x24c
	if _, err := release(kernel); err != nil {
		return nil, err
	}
	if len(kernel) < length+4 || binary.LittleEndian.Uint16(kernel[version:]) < 0x0208 {
		return nil, errors.New("the kernel does not say where it is")
	}
	start := (int(kernel[setupSectors])+1)*512 + int(binary.LittleEndian.Uint32(kernel[offset:]))
	size := int(binary.LittleEndian.Uint32(kernel[length:]))
	if size < 4 || start > len(kernel)-size {
		return nil, errors.New("the kernel says that it is where it is not")
	}
	packed := kernel[start : start+size]
	// All formats but gzip are followed by the size of the result.
	withoutSize := bytes.NewReader(packed[:size-4])
	var r io.Reader
	var err error
	switch {
	case bytes.HasPrefix(packed, []byte{0x1f, 0x8b}):
		r, err = gzip.NewReader(bytes.NewReader(packed))
	case bytes.HasPrefix(packed, []byte{0x02, 0x21, 0x4c, 0x18}):
		r = lz4.NewReader(withoutSize)
	case bytes.HasPrefix(packed, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		r, err = zstd.NewReader(withoutSize)
	default:
		err = fmt.Errorf("the kernel is compressed in a way that is not known here (% x)", packed[:4])
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// hasPVHEntry looks for the ELF note by which a kernel says where a virtual machine
// can start it (XEN_ELFNOTE_PHYS32_ENTRY).
func hasPVHEntry(kernel []byte) bool {
	const entry = 18
	file, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return false
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_NOTE {
			continue
		}
		notes := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(notes, 0); err != nil {
			return false
		}
		if hasNote(notes, "Xen", entry) {
			return true
		}
	}
	return false
}

// hasNote looks for a note among those of an ELF segment: each is the sizes of name
// and content, the type, the name and the content, both filled up to 4 bytes.
func hasNote(notes []byte, owner string, kind uint32) bool {
	const header = 12
	for len(notes) >= header {
		nameSize := int(binary.LittleEndian.Uint32(notes))
		contentSize := int(binary.LittleEndian.Uint32(notes[4:]))
		if nameSize > len(notes) || contentSize > len(notes) {
			return false
		}
		next := header + (nameSize+3)&^3 + (contentSize+3)&^3
		if next > len(notes) {
			return false
		}
		name := bytes.TrimRight(notes[header:header+nameSize], "\x00")
		if string(name) == owner && binary.LittleEndian.Uint32(notes[8:]) == kind {
			return true
		}
		notes = notes[next:]
	}
	return false
}
