package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// The formats that images may have.
const (
	formatQcow2 = "qcow2"
	formatRaw   = "raw"
)

// otherFormats are what files of other formats begin with, or have at an offset: qemu-img would find them out. Some name
// further files, which it would open.
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

// qcow2Header is the beginning of a file in that format, as far as it matters here.
// https://www.qemu.org/docs/master/interop/qcow2.html
type qcow2Header struct {
	Magic, Version                  uint32
	BackingFileOffset               uint64
	BackingFileSize, ClusterBits    uint32
	Size                            uint64
	CryptMethod, L1Size             uint32
	L1TableOffset, RefcountOffset   uint64
	RefcountClusters, SnapshotCount uint32
	SnapshotsOffset                 uint64
	IncompatibleFeatures, _, _      uint64 // from version 3 on
}

const (
	qcow2Magic = 'Q'<<24 | 'F'<<16 | 'I'<<8 | 0xfb
	// externalData is the bit of the incompatible features that says that the data is in another file.
	externalData = 1 << 2
	// maxBackingName is how long the name of a backing file may be.
	maxBackingName = 1023
)

var (
	errOtherFile   = errors.New("it has its data in another file, which is not followed")
	errOtherFormat = errors.New("it must be qcow2 or raw")
)

// examine returns the format of an image that somebody may have made to do harm: declared, or what the file itself tells. It
// opens nothing but the file, where qemu-img would also open what that names, as the manager.
func examine(path, declared string) (string, error) {
	begin, err := readBegin(path)
	if err != nil {
		return "", err
	}
	return examineBegin(begin, declared)
}

// readBegin returns what a file begins with, as far as it matters here.
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

// readHeader returns the header of a disk. That of a file in another format has another Magic.
func readHeader(path string) (qcow2Header, error) {
	begin, err := readBegin(path)
	if err != nil {
		return qcow2Header{}, err
	}
	return parseHeader(begin)
}

func parseHeader(begin []byte) (qcow2Header, error) {
	var header qcow2Header
	whole := make([]byte, binary.Size(header)) // what a short file lacks is zero
	copy(whole, begin)
	err := binary.Read(bytes.NewReader(whole), binary.BigEndian, &header)
	return header, err
}

func examineBegin(begin []byte, declared string) (string, error) {
	if declared == formatRaw {
		return formatRaw, nil // nothing in it counts
	}
	header, err := parseHeader(begin)
	if err != nil {
		return "", err
	}
	if header.Magic == qcow2Magic {
		switch {
		case header.Version < 2:
			return "", fmt.Errorf("it is in the format qcow: %w", errOtherFormat)
		case header.BackingFileOffset != 0, header.Version > 2 && header.IncompatibleFeatures&externalData != 0:
			return "", errOtherFile
		}
		return formatQcow2, nil
	}
	if declared == formatQcow2 {
		return formatQcow2, nil // qemu-img says what is wrong with it
	}
	for _, other := range otherFormats {
		if len(begin) > other.offset && bytes.HasPrefix(begin[other.offset:], []byte(other.magic)) {
			return "", fmt.Errorf("it is in the format %s: %w", other.name, errOtherFormat)
		}
	}
	return formatRaw, nil
}
