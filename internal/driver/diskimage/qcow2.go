package diskimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// extendedL2 is the incompatible feature bit for entries of L2 tables with twice the size.
	extendedL2 = 1 << 4
	// offsetMask are the bits of an entry of a table that are an offset in the file, and compressedCluster is the bit of one whose
	// cluster is compressed.
	offsetMask        = 0x00fffffffffffe00
	compressedCluster = 1 << 62
	// The limits of QEMU for a cluster, in bits, and for an L1 table, in bytes.
	minClusterBits, maxClusterBits = 9, 21
	maxL1Table                     = 32 << 20
)

var errDamaged = errors.New("its format is qcow2, but its header is damaged")

// cutOff returns the error for a file that is shorter than what is in it.
func cutOff(size int64) error {
	return fmt.Errorf("it is cut off: it has %d bytes, and its format qcow2 names clusters beyond them. Download or copy it again", size)
}

// checkClusters returns an error if a file in the format qcow2 ends before a cluster of it begins. QEMU would read zeros there.
func checkClusters(file *os.File, h *Header) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if h.ClusterBits < minClusterBits || h.ClusterBits > maxClusterBits || uint64(h.L1Size)*8 > maxL1Table {
		return errDamaged
	}
	l1, err := readTable(file, size, h.L1TableOffset, int64(h.L1Size)*8)
	if err != nil {
		return err
	}
	step := 1
	if h.Version > 2 && h.IncompatibleFeatures&extendedL2 != 0 {
		step = 2
	}
	seen := map[uint64]bool{} // tables are not shared, except by a file that is to keep its reader busy
	for i := range l1 {
		offset := l1[i] & offsetMask
		if offset == 0 || seen[offset] {
			continue
		}
		seen[offset] = true
		l2, err := readTable(file, size, offset, 1<<h.ClusterBits)
		if err != nil {
			return err
		}
		for j := 0; j < len(l2); j += step {
			at := l2[j] & offsetMask
			if l2[j]&compressedCluster != 0 {
				at = l2[j] & (1<<(62-(h.ClusterBits-8)) - 1)
			}
			if at >= uint64(size) { //nolint:gosec // a size is positive
				return cutOff(size)
			}
		}
	}
	return nil
}

// readTable reads a table of numbers from a file of a size.
func readTable(file *os.File, size int64, offset uint64, bytes int64) ([]uint64, error) {
	if bytes == 0 {
		return nil, nil
	}
	if offset > uint64(size) || size-int64(offset) < bytes { //nolint:gosec // it is not more than the size
		return nil, cutOff(size)
	}
	table := make([]uint64, bytes/8)
	err := binary.Read(io.NewSectionReader(file, int64(offset), bytes), binary.BigEndian, table) //nolint:gosec // as above
	return table, err
}
