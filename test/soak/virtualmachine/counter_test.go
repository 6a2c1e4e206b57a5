//go:build soak

package virtualmachine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// guest is the boot sector of the machines. It counts in memory and in the second sector of the disk, about once a second, and shows
// the number at the serial port after it is on the disk. Before, it reads the disk: if that has another number than the memory, it
// shows ! and halts. It shows ? if the disk fails. SeaBIOS has no cache of the disk, so that QEMU makes each number durable.
//
//	    cli; xorw %ax,%ax; movw %ax,%ds; movw %ax,%es; movw %ax,%ss; movw $0x7c00,%sp; sti; movb %dl,0x8204
//	    movb $2,%ah; call disk; movl %eax,0x8200
//	again: movw $18,%cx
//	tick: hlt; loop tick; movb $2,%ah; call disk; cmpl 0x8200,%eax; movb $'!',%al; jne fail; incl 0x7e00
//	    incl 0x8200; movb $3,%ah; call disk; movl 0x8200,%edx; movw $8,%cx
//	digit: roll $4,%edx; movb %dl,%al; andb $15,%al; cmpb $10,%al; sbbb $0x69,%al; das; call put; loop digit
//	    movb $'\n',%al; call put; jmp again
//	disk: movb $1,%al; movw $0x7e00,%bx; movw $2,%cx; movb $0,%dh; movb 0x8204,%dl; int $0x13; movb $'?',%al
//	    jc fail; movl 0x7e00,%eax; ret
//	fail: call put; movb $'\n',%al; call put
//	stop: hlt; jmp stop
//	put: pushw %dx; pushw %ax; movw $0x3fd,%dx
//	wait: inb %dx,%al; testb $0x20,%al; jz wait; popw %ax; movw $0x3f8,%dx; outb %al,%dx; popw %dx; ret
var guest = []byte{
	0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0x88, 0x16, 0x04, 0x82, 0xb4, 0x02, 0xe8, 0x48, 0x00, 0x66, 0xa3,
	0x00, 0x82, 0xb9, 0x12, 0x00, 0xf4, 0xe2, 0xfd, 0xb4, 0x02, 0xe8, 0x39, 0x00, 0x66, 0x3b, 0x06, 0x00, 0x82, 0xb0, 0x21, 0x75, 0x49, 0x66, 0xff,
	0x06, 0x00, 0x7e, 0x66, 0xff, 0x06, 0x00, 0x82, 0xb4, 0x03, 0xe8, 0x21, 0x00, 0x66, 0x8b, 0x16, 0x00, 0x82, 0xb9, 0x08, 0x00, 0x66, 0xc1, 0xc2,
	0x04, 0x88, 0xd0, 0x24, 0x0f, 0x3c, 0x0a, 0x1c, 0x69, 0x2f, 0xe8, 0x2d, 0x00, 0xe2, 0xee, 0xb0, 0x0a, 0xe8, 0x26, 0x00, 0xeb, 0xbc, 0xb0, 0x01,
	0xbb, 0x00, 0x7e, 0xb9, 0x02, 0x00, 0xb6, 0x00, 0x8a, 0x16, 0x04, 0x82, 0xcd, 0x13, 0xb0, 0x3f, 0x72, 0x05, 0x66, 0xa1, 0x00, 0x7e, 0xc3, 0xe8,
	0x08, 0x00, 0xb0, 0x0a, 0xe8, 0x03, 0x00, 0xf4, 0xeb, 0xfd, 0x52, 0x50, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0x58, 0xba, 0xf8, 0x03,
	0xee, 0x5a, 0xc3, 0x00,
}

// newDisk returns a disk with the guest, whose counter is 0.
func newDisk() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, guest)
	disk[510], disk[511] = 0x55, 0xaa
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

// checkCounters reads what the guests have shown. It fails the test if one has found another number on its disk than in its memory, or
// if a number is not larger than the one before it, except by a restore.
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
var shown = regexp.MustCompile(`^[0-9A-F]*?([0-9A-F]{8}|[!?])$`)

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
