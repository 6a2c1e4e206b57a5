//go:build soak

package virtualmachine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// guest is the boot sector of the machines. About once a second, it writes a piece of a file on the disk, and then the number of the
// piece to the second sector. It reads the whole file, and shows the number and the CRC-32 (IEEE, not inverted) of the file at the
// serial port. Before, it reads the number on the disk: if that is not the one in its memory, it shows ! and halts. It shows ? if the
// disk fails. SeaBIOS has no cache of the disk, so that QEMU makes each write durable before the guest goes on.
//
//	    cli; xorw %ax,%ax; movw %ax,%ds; movw %ax,%es; movw %ax,%ss; movw $0x7c00,%sp; sti; cld; movb %dl,0x8204
//	    call number; movl %eax,0x8200
//	again: movw $18,%cx
//	tick: hlt; loop tick; call number; cmpl 0x8200,%eax; movb $'!',%al; jne fail
//	    incl 0x8200; movl 0x8200,%eax; movw %ax,%bx; movw $0x7e00,%di; movw $128,%cx
//	fill: imull $1664525,%eax; addl $1013904223,%eax; stosl; loop fill; movb $0x43,%ah; call piece
//	    movl 0x8200,%eax; movl %eax,0x7e00; movb $0x43,%ah; movw $1,%bx; call disk
//	    movl $-1,%ebp; xorw %bx,%bx
//	read: pushw %bx; movb $0x42,%ah; call piece; popw %bx; movw $0x7e00,%si; movw $128,%cx
//	dword: lodsl; xorl %eax,%ebp; pushw %cx; movw $32,%cx
//	bit: shrl %ebp; jnc even; xorl $0xedb88320,%ebp
//	even: loop bit; popw %cx; loop dword; incw %bx; cmpb $8,%bl; jne read
//	    movl 0x8200,%edx; call hex; movl %ebp,%edx; call hex; movb $'\n',%al; call put; jmp again
//	number: movb $0x42,%ah; movw $1,%bx; call disk; movl 0x7e00,%eax; ret
//	piece: andw $7,%bx; incw %bx; shlw $7,%bx
//	disk: movw %bx,packet+8; movw $packet,%si; movb $0,%al; movb 0x8204,%dl; int $0x13; movb $'?',%al; jc fail; ret
//	fail: call put; movb $'\n',%al; call put
//	stop: hlt; jmp stop
//	hex: movw $8,%cx
//	digit: roll $4,%edx; movb %dl,%al; andb $15,%al; cmpb $10,%al; sbbb $0x69,%al; das; call put; loop digit; ret
//	put: pushw %dx; pushw %ax; movw $0x3fd,%dx
//	wait: inb %dx,%al; testb $0x20,%al; jz wait; popw %ax; movw $0x3f8,%dx; outb %al,%dx; popw %dx; ret
//	packet: .byte 16,0; .word 1,0x7e00,0; .quad 0
var guest = []byte{
	0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0xfc, 0x88, 0x16, 0x04, 0x82, 0xe8, 0x9a, 0x00, 0x66, 0xa3, 0x00,
	0x82, 0xb9, 0x12, 0x00, 0xf4, 0xe2, 0xfd, 0xe8, 0x8d, 0x00, 0x66, 0x3b, 0x06, 0x00, 0x82, 0xb0, 0x21, 0x0f, 0x85, 0xaa, 0x00, 0x66, 0xff, 0x06,
	0x00, 0x82, 0x66, 0xa1, 0x00, 0x82, 0x89, 0xc3, 0xbf, 0x00, 0x7e, 0xb9, 0x80, 0x00, 0x66, 0x69, 0xc0, 0x0d, 0x66, 0x19, 0x00, 0x66, 0x05, 0x5f,
	0xf3, 0x6e, 0x3c, 0x66, 0xab, 0xe2, 0xef, 0xb4, 0x43, 0xe8, 0x68, 0x00, 0x66, 0xa1, 0x00, 0x82, 0x66, 0xa3, 0x00, 0x7e, 0xb4, 0x43, 0xbb, 0x01,
	0x00, 0xe8, 0x5f, 0x00, 0x66, 0xbd, 0xff, 0xff, 0xff, 0xff, 0x31, 0xdb, 0x53, 0xb4, 0x42, 0xe8, 0x4a, 0x00, 0x5b, 0xbe, 0x00, 0x7e, 0xb9, 0x80,
	0x00, 0x66, 0xad, 0x66, 0x31, 0xc5, 0x51, 0xb9, 0x20, 0x00, 0x66, 0xd1, 0xed, 0x73, 0x07, 0x66, 0x81, 0xf5, 0x20, 0x83, 0xb8, 0xed, 0xe2, 0xf2,
	0x59, 0xe2, 0xe6, 0x43, 0x80, 0xfb, 0x08, 0x75, 0xd3, 0x66, 0x8b, 0x16, 0x00, 0x82, 0xe8, 0x41, 0x00, 0x66, 0x89, 0xea, 0xe8, 0x3b, 0x00, 0xb0,
	0x0a, 0xe8, 0x4c, 0x00, 0xe9, 0x6a, 0xff, 0xb4, 0x42, 0xbb, 0x01, 0x00, 0xe8, 0x0c, 0x00, 0x66, 0xa1, 0x00, 0x7e, 0xc3, 0x83, 0xe3, 0x07, 0x43,
	0xc1, 0xe3, 0x07, 0x89, 0x1e, 0x11, 0x7d, 0xbe, 0x09, 0x7d, 0xb0, 0x00, 0x8a, 0x16, 0x04, 0x82, 0xcd, 0x13, 0xb0, 0x3f, 0x72, 0x01, 0xc3, 0xe8,
	0x1e, 0x00, 0xb0, 0x0a, 0xe8, 0x19, 0x00, 0xf4, 0xeb, 0xfd, 0xb9, 0x08, 0x00, 0x66, 0xc1, 0xc2, 0x04, 0x88, 0xd0, 0x24, 0x0f, 0x3c, 0x0a, 0x1c,
	0x69, 0x2f, 0xe8, 0x03, 0x00, 0xe2, 0xee, 0xc3, 0x52, 0x50, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0x58, 0xba, 0xf8, 0x03, 0xee, 0x5a,
	0xc3, 0x10, 0x00, 0x01, 0x00, 0x00, 0x7e,
}

const (
	// pieces is the number of pieces of the file, each of which is a sector in a cluster of the disk of its own.
	pieces  = 8
	sector  = 512
	cluster = 64 << 10
)

// pieceOf returns the piece of the file that a guest writes for a number.
func pieceOf(number uint32) []byte {
	var piece []byte
	for len(piece) < sector {
		number = number*1664525 + 1013904223
		piece = binary.LittleEndian.AppendUint32(piece, number)
	}
	return piece
}

// file returns the pieces of the file after a guest has written that of a number, which replaces the oldest one.
func file(last uint32) [][]byte {
	all := make([][]byte, pieces)
	for i := range uint32(pieces) {
		all[(last-i)%pieces] = pieceOf(last - i)
	}
	return all
}

// checksum returns what a guest shows as the checksum of its file after a number.
func checksum(last uint32) uint32 { return ^crc32.ChecksumIEEE(bytes.Join(file(last), nil)) }

// newDisk returns a disk with the guest, whose counter is 0.
func newDisk() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, guest)
	disk[510], disk[511] = 0x55, 0xaa
	for i, piece := range file(0) {
		copy(disk[(1+i)*cluster:], piece)
	}
	return disk
}

// counter is what is known of the counter of a machine.
type counter struct {
	// read is how much of its log was read, and number is the last one in it.
	read   int
	number uint64
	// restores is the number of requests to restore the machine, and back how often the counter has gone back.
	restores, back int
}

// counterOf returns the counter of a machine.
func (w *world) counterOf(uid types.UID) *counter {
	if w.counters[uid] == nil {
		w.counters[uid] = &counter{}
	}
	return w.counters[uid]
}

// checkCounters reads what the guests have shown. It fails the test if one has found another number on its disk than in its memory, if
// the file on its disk is not the one that it has written, or if a number is not larger than the one before it, except by a restore.
func (w *world) checkCounters(t *testing.T) {
	t.Helper()
	for uid := range w.uids {
		log, err := os.ReadFile(filepath.Join(w.stateDir, "machines", "machines", string(uid), "serial.log"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is not created, or deleted
		}
		if err != nil {
			t.Fatal(err)
		}
		c := w.counterOf(uid)
		for end := bytes.IndexByte(log[c.read:], '\n'); end >= 0; end = bytes.IndexByte(log[c.read:], '\n') {
			line := string(log[c.read : c.read+end])
			c.read += end + 1
			c.add(t, uid, line)
		}
	}
}

// shown matches a line that the guest has shown. The end of a line before it is missing if QEMU was killed. QEMU writes to the log, too.
var shown = regexp.MustCompile(`^[0-9A-F]*?(?:([0-9A-F]{8})([0-9A-F]{8})|[!?])$`)

// add takes note of a line of the log of a machine.
func (c *counter) add(t *testing.T, uid types.UID, line string) {
	t.Helper()
	match := shown.FindStringSubmatch(line)
	if match == nil {
		return
	}
	number, err := strconv.ParseUint(match[1], 16, 32)
	if err != nil {
		t.Fatalf("The guest of %s shows %s after the number %d: ! means that its disk and its memory differ, ? that its disk failed", uid, line, c.number)
	}
	if want := fmt.Sprintf("%08X", checksum(uint32(number))); match[2] != want {
		t.Fatalf("The file on the disk of %s has the checksum %s after the number %d; want %s", uid, match[2], number, want)
	}
	if number <= c.number {
		c.back++
	}
	if c.back > c.restores {
		t.Fatalf("The counter of %s has gone back from %d to %d. It was restored %d times", uid, c.number, number, c.restores)
	}
	c.number = number
}

// stuck returns a machine whose counter is not larger than it was; "" if there is none.
func (w *world) stuck(t *testing.T, before map[types.UID]uint64) string {
	t.Helper()
	w.checkCounters(t)
	for _, vm := range w.list(t) {
		if c := w.counterOf(vm.UID); c.number <= before[vm.UID] {
			return fmt.Sprintf("%s counts at %d", vm.Name, c.number)
		}
	}
	return ""
}

// numbers returns the numbers of all counters.
func (w *world) numbers() map[types.UID]uint64 {
	all := map[types.UID]uint64{}
	for uid, c := range w.counters {
		all[uid] = c.number
	}
	return all
}
