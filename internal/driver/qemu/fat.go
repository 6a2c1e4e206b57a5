package qemu

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"
)

// A FAT file system as in Microsoft's "FAT: General Overview of On-Disk Format", as small
// as it can be: some files in the root directory, each in one piece, with long names.
const (
	sectorSize  = 512
	rootEntries = 64
	entrySize   = 32
	// nameChars is how many characters of a long name one directory entry has.
	nameChars = 13
	// maxClusters is how many clusters a FAT12 may have: beyond, it would be read as
	// FAT16.
	maxClusters = 4084
	// minSectors is a size that every reader takes.
	minSectors = 720
)

// fatFile is a file to be put into the root directory.
type fatFile struct {
	name    string
	content []byte
}

// newFAT returns the image of a FAT12 file system with a label of 11 characters at most.
func newFAT(label string, files []fatFile) ([]byte, error) {
	total := 0
	for _, file := range files {
		total += len(file.content) + sectorSize
	}
	// As many sectors for each cluster as it takes to have few enough clusters.
	perCluster := 1
	for total/(perCluster*sectorSize)+len(files) > maxClusters/2 {
		if perCluster *= 2; perCluster > 64 {
			return nil, fmt.Errorf("a seed of %d bytes is too large", total)
		}
	}
	clusterSize := perCluster * sectorSize
	clusters := 0
	for _, file := range files {
		clusters += (len(file.content) + clusterSize - 1) / clusterSize
	}
	clusters = max(clusters, minSectors/perCluster)
	fatSectors := ((clusters+2)*3/2 + sectorSize) / sectorSize
	rootSectors := rootEntries * entrySize / sectorSize
	dataStart := 1 + 2*fatSectors + rootSectors
	sectors := dataStart + clusters*perCluster
	if sectors > 0xffff {
		return nil, fmt.Errorf("a seed of %d bytes is too large", total)
	}

	image := make([]byte, sectors*sectorSize)
	writeBootSector(image, label, perCluster, sectors, fatSectors)
	table := newTable(clusters)
	root := directory{entries: image[(1+2*fatSectors)*sectorSize : dataStart*sectorSize]}
	root.add(append([]byte(fmt.Sprintf("%-11.11s", label)), 0x08))
	next := 2
	for i, file := range files {
		count := (len(file.content) + clusterSize - 1) / clusterSize
		first := 0
		if count > 0 {
			first = next
			copy(image[dataStart*sectorSize+(first-2)*clusterSize:], file.content)
			table.chain(first, count)
			next += count
		}
		if err := root.addFile(file.name, i, first, len(file.content)); err != nil {
			return nil, err
		}
	}
	for copyNumber := range 2 {
		copy(image[(1+copyNumber*fatSectors)*sectorSize:], table)
	}
	return image, nil
}

func writeBootSector(image []byte, label string, perCluster, sectors, fatSectors int) {
	le := binary.LittleEndian
	copy(image, "\xeb\x3c\x90KEELSON ")
	le.PutUint16(image[11:], sectorSize)
	image[13] = byte(perCluster)
	le.PutUint16(image[14:], 1) // sectors before the tables
	image[16] = 2               // tables
	le.PutUint16(image[17:], rootEntries)
	le.PutUint16(image[19:], uint16(sectors))
	image[21] = 0xf8 // a fixed disk
	le.PutUint16(image[22:], uint16(fatSectors))
	le.PutUint16(image[24:], 32) // sectors for each track, which nobody has any more
	le.PutUint16(image[26:], 2)  // heads
	image[36] = 0x80
	image[38] = 0x29 // what follows is there
	le.PutUint32(image[39:], 0x4b45454c)
	copy(image[43:], fmt.Sprintf("%-11.11s", label))
	copy(image[54:], "FAT12   ")
	image[510], image[511] = 0x55, 0xaa
}

// allocation is the table of a FAT12: 12 bits for each cluster.
type allocation []byte

func newTable(clusters int) allocation {
	table := make(allocation, (clusters+2)*3/2+2)
	table.set(0, 0xff8)
	table.set(1, 0xfff)
	return table
}

func (t allocation) set(cluster, value int) {
	at := cluster * 3 / 2
	if cluster%2 == 0 {
		t[at] = byte(value)
		t[at+1] = t[at+1]&0xf0 | byte(value>>8)
	} else {
		t[at] = t[at]&0x0f | byte(value<<4)
		t[at+1] = byte(value >> 4)
	}
}

// chain gives clusters, one behind the other, to a file.
func (t allocation) chain(first, count int) {
	for cluster := first; cluster < first+count-1; cluster++ {
		t.set(cluster, cluster+1)
	}
	t.set(first+count-1, 0xfff)
}

// directory is the root directory.
type directory struct {
	entries []byte
	used    int
}

func (d *directory) add(entry []byte) {
	copy(d.entries[d.used*entrySize:(d.used+1)*entrySize], entry)
	d.used++
}

// addFile adds a file: its long name in pieces, the last one first, then the entry itself
// with a short name that is only there to be there.
func (d *directory) addFile(name string, number, cluster, size int) error {
	units := utf16.Encode([]rune(name))
	pieces := (len(units) + nameChars - 1) / nameChars
	if d.used+pieces+1 > rootEntries {
		return fmt.Errorf("there is no room for the file %s", name)
	}
	short := []byte(fmt.Sprintf("FILE%04d   ", number))
	for piece := pieces; piece > 0; piece-- {
		d.add(longEntry(units, piece, piece == pieces, checksum(short)))
	}
	entry := make([]byte, entrySize)
	copy(entry, short)
	entry[11] = 0x20
	// 1 January 2020: a date has to be valid.
	for _, at := range []int{16, 18, 24} {
		binary.LittleEndian.PutUint16(entry[at:], (2020-1980)<<9|1<<5|1)
	}
	binary.LittleEndian.PutUint16(entry[26:], uint16(cluster))
	binary.LittleEndian.PutUint32(entry[28:], uint32(size))
	d.add(entry)
	return nil
}

// longEntry returns an entry with the n-th piece of a long name, counted from 1.
func longEntry(units []uint16, n int, last bool, sum byte) []byte {
	entry := make([]byte, entrySize)
	entry[0] = byte(n)
	if last {
		entry[0] |= 0x40
	}
	entry[11], entry[13] = 0x0f, sum
	places := []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}
	for i, at := range places {
		unit := uint16(0xffff)
		switch index := (n-1)*nameChars + i; {
		case index < len(units):
			unit = units[index]
		case index == len(units):
			unit = 0
		}
		binary.LittleEndian.PutUint16(entry[at:], unit)
	}
	return entry
}

// checksum ties the pieces of a long name to the short one.
func checksum(short []byte) byte {
	var sum byte
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}
