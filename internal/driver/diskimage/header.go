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

// signature is what files of a format have at an offset.
type signature struct {
	name   string
	offset int
	magic  string
}

// packedFormats are signatures of compressed files and archives, in which many images are published.
var packedFormats = []signature{
	{"gzip", 0, "\x1f\x8b\x08"}, {"xz", 0, "\xfd7zXZ\x00"}, {"zstd", 0, "\x28\xb5\x2f\xfd"}, {"bzip2", 0, "BZh"}, {"lz4", 0, "\x04\x22\x4d\x18"},
	{"lzip", 0, "LZIP"}, {"zip", 0, "PK\x03\x04"}, {"7z", 0, "7z\xbc\xaf\x27\x1c"}, {"rar", 0, "Rar!\x1a\x07"}, {"tar", 257, "ustar"},
}

// otherFormats are signatures of other formats that qemu-img would detect. Some name further files,
// which it would open.
var otherFormats = []signature{
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
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	begin, err := readBegin(file)
	if err != nil {
		return "", err
	}
	format, err := examineBegin(begin, declared)
	if err != nil {
		return "", err
	}
	if format == Qcow2 {
		header, err := parseHeader(begin)
		if err == nil && header.Magic == Qcow2Magic {
			err = checkClusters(file, &header)
		}
		return format, err
	}
	return format, checkRaw(file, begin, declared)
}

// readBegin returns the beginning of a file, as far as it matters here.
func readBegin(file *os.File) ([]byte, error) {
	begin := make([]byte, 1024)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return begin[:n], nil
}

// sectorSize is the unit of the size of disks.
const sectorSize = 512

// checkRaw returns an error if a file whose format is raw cannot be a disk. One that is declared as raw may have any content.
func checkRaw(file *os.File, begin []byte, declared string) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case len(begin) == 0:
		return errors.New("it is empty: download or copy it again")
	case declared == Raw:
		return nil
	case info.Size()%sectorSize != 0:
		return fmt.Errorf("it is no disk image: it is not qcow2, and its size of %d bytes is no multiple of %d. If it is a raw disk, set format: raw", info.Size(), sectorSize)
	case isText(begin):
		return errors.New("it is no disk image: it is text. If it is a raw disk, set format: raw")
	}
	return nil
}

// isText reports whether bytes have no control characters but white space.
func isText(content []byte) bool {
	return bytes.IndexFunc(content, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }) < 0
}

// ReadHeader returns the header of a disk. In a file of another format, Magic differs.
func ReadHeader(path string) (Header, error) {
	file, err := os.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer file.Close()
	begin, err := readBegin(file)
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

func has(begin []byte, offset int, magic string) bool {
	return len(begin) > offset && bytes.HasPrefix(begin[offset:], []byte(magic))
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
		if has(begin, other.offset, other.magic) {
			return "", fmt.Errorf("its format is %s: %w", other.name, errOtherFormat)
		}
	}
	for _, packed := range packedFormats {
		if has(begin, packed.offset, packed.magic) {
			return "", fmt.Errorf("it is packed with %s: unpack it", packed.name)
		}
	}
	return Raw, nil
}
