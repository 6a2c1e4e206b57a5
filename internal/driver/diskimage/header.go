// Package diskimage downloads untrusted disk images, and finds out what they are.
package diskimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// The formats of images.
const (
	Qcow2 = "qcow2"
	Raw   = "raw"
)

// otherFormats are signatures of other formats that qemu-img would detect. Some name further files,
// which it would open.
var otherFormats = []struct {
	name   string
	offset int
	magic  string
}{
	{"vmdk", 0, "# Disk DescriptorFile"}, {"vmdk", 0, "KDMV"}, {"vmdk", 0, "COWD"},
	{"vhdx", 0, "vhdxfile"}, {"vpc", 0, "conectix"}, {"vdi", 64, "\x7f\x10\xda\xbe"}, {"qed", 0, "QED\x00"},
	{"parallels", 0, "WithoutFreeSpace"}, {"parallels", 0, "WithouFreSpacExt"}, {"luks", 0, "LUKS\xba\xbe"},
	{"bochs", 0, "Bochs Virtual HD Image"}, {"cloop", 0, "#!/bin/sh\n#V2.0 Format\nmodprobe cloop"},
}

// Header is the beginning of a qcow2 file, as far as it matters here.
// https://www.qemu.org/docs/master/interop/qcow2.html
type Header struct {
	Magic, Version                  uint32
	BackingFileOffset               uint64
	BackingFileSize, ClusterBits    uint32
	Size                            uint64
	CryptMethod, L1Size             uint32
	L1TableOffset, RefcountOffset   uint64
	RefcountClusters, SnapshotCount uint32
	SnapshotsOffset                 uint64
	IncompatibleFeatures, _, _      uint64 // since version 3
}

const (
	// Qcow2Magic is Magic of a file in the format qcow2.
	Qcow2Magic = 'Q'<<24 | 'F'<<16 | 'I'<<8 | 0xfb
	// externalData is the incompatible feature bit for data in a separate file.
	externalData = 1 << 2
	// MaxBackingName is the maximum length of a backing file name.
	MaxBackingName = 1023
)

var (
	// ErrOtherFile means that an image needs another file.
	ErrOtherFile   = errors.New("it refers to another file, which is not allowed")
	errOtherFormat = errors.New("it must be qcow2 or raw")
)

// Examine returns the format of an untrusted image: the declared one, or the one that the file
// shows. It opens only the file itself; qemu-img would also open files that the image names, as the
// manager.
func Examine(path, declared string) (string, error) {
	begin, err := readBegin(path)
	if err != nil {
		return "", err
	}
	return examineBegin(begin, declared)
}

// readBegin returns the beginning of a file, as far as it matters here.
func readBegin(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	begin := make([]byte, 1024)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return begin[:n], nil
}

// ReadHeader returns the header of a disk. In a file of another format, Magic differs.
func ReadHeader(path string) (Header, error) {
	begin, err := readBegin(path)
	if err != nil {
		return Header{}, err
	}
	return parseHeader(begin)
}

func parseHeader(begin []byte) (Header, error) {
	var header Header
	whole := make([]byte, binary.Size(header)) // a short file is padded with zeros
	copy(whole, begin)
	err := binary.Read(bytes.NewReader(whole), binary.BigEndian, &header)
	return header, err
}

func examineBegin(begin []byte, declared string) (string, error) {
	if declared == Raw {
		return Raw, nil // its content does not matter
	}
	header, err := parseHeader(begin)
	if err != nil {
		return "", err
	}
	if header.Magic == Qcow2Magic {
		switch {
		case header.Version < 2:
			return "", fmt.Errorf("its format is qcow: %w", errOtherFormat)
		case header.BackingFileOffset != 0, header.Version > 2 && header.IncompatibleFeatures&externalData != 0:
			return "", ErrOtherFile
		}
		return Qcow2, nil
	}
	if declared == Qcow2 {
		return Qcow2, nil // qemu-img reports what is wrong with it
	}
	for _, other := range otherFormats {
		if len(begin) > other.offset && bytes.HasPrefix(begin[other.offset:], []byte(other.magic)) {
			return "", fmt.Errorf("its format is %s: %w", other.name, errOtherFormat)
		}
	}
	return Raw, nil
}
