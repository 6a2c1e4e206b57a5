package launcher

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskspace"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// checkInterval is the interval at which QEMU is asked for its status, and at which a guest that a full volume has halted goes on, if there is
// room. Tests shorten it.
var checkInterval = 20 * time.Second

// notAnswering is why nothing is known of a guest.
const notAnswering = "its QEMU does not answer. See the storage of its volumes and the load of its node; to end it, set spec.action to stopped"

// checks are requests for the status of QEMU, one at a time: they would pile up in one that does not answer.
type checks struct {
	results chan checked
	// running means that there is one since begun. again means that another follows it.
	running, again bool
	begun          time.Time
	// full are the disks that could not be written because their volumes are full, since the guest was last seen running, and failed is when
	// the last write failed. The guest may run for a moment then.
	full   []string
	failed time.Time
	// hung means that QEMU does not answer.
	hung bool
}

// checked is the status of QEMU. room means that a guest that a full volume has halted may go on.
type checked struct {
	status string
	err    error
	room   bool
}

// check begins to ask QEMU for its status. due means that a guest which a full volume has halted goes on if there is room: not at once, because
// the free space of some volumes is not that of the file system.
func (l *launcher) check(conn *qmp.Client, due bool) {
	c := &l.checks
	switch {
	case l.sleeper.running || l.halting.Load():
		return // QEMU may not answer for long, and its status is no news
	case !c.running:
	case time.Since(c.begun) > monitorTimeout:
		c.hung = true
		l.tellHalted(notAnswering)
		return
	default:
		c.again = true
		return
	}
	c.running, c.begun = true, time.Now()
	dirs := l.fullDirs()
	go func() {
		var got struct{ Status string }
		err := conn.Run(context.Background(), "query-status", nil, &got) // it ends with the connection
		room := due && !slices.ContainsFunc(dirs, func(dir string) bool { return !diskspace.IsEnough(dir) })
		c.results <- checked{got.Status, err, room}
	}()
}

// endCheck ends a check with its result.
func (l *launcher) endCheck(conn *qmp.Client, got checked) {
	c := &l.checks
	c.running, c.hung = false, false
	again := c.again
	c.again = false
	switch {
	case l.sleeper.running || l.halting.Load() || got.err != nil:
	// A snapshot with memory leaves it paused, a failed attempt to sleep after the migration.
	case got.status == "io-error", l.isFull() && (got.status == "paused" || got.status == "postmigrate"):
		l.halted = true
		if len(c.full) == 0 { // the event was lost
			for _, disk := range l.definition.AllDisks() {
				c.full = append(c.full, disk.Name)
			}
		}
		l.tellHalted(fullMessage(c.full, l.definition.Ephemeral))
		if got.room {
			l.goOn(conn)
		}
	case time.Since(c.failed) >= checkInterval:
		c.full = nil
		l.tellHalted("")
	}
	if again {
		l.check(conn, false)
	}
}

// goOn lets a guest go on that a full volume has halted, unless the manager wants it halted, or is about to say so. It counts as halted until
// the next check.
func (l *launcher) goOn(conn *qmp.Client) {
	if !l.changing.TryLock() {
		return
	}
	defer l.changing.Unlock()
	if !l.paused.Load() {
		_ = call(conn, "cont") // the next check shows whether it runs
	}
}

// isFull reports whether the guest is halted only because a volume is full.
func (l *launcher) isFull() bool { return len(l.checks.full) > 0 && !l.paused.Load() }

// fullDirs returns the volumes that are full; all of them if that is not known.
func (l *launcher) fullDirs() (dirs []string) {
	for _, disk := range l.definition.AllDisks() {
		if len(l.checks.full) == 0 || slices.Contains(l.checks.full, disk.Name) {
			dirs = append(dirs, filepath.Dir(l.diskPath(disk)))
		}
	}
	return dirs
}

// addFull adds the disk that could not be written, of those of the machine. node is its block node.
func (c *checks) addFull(disks []Disk, node string) {
	c.failed = time.Now()
	for _, disk := range disks {
		if qemu.DiskNode(disk.Name) == node && !slices.Contains(c.full, disk.Name) {
			c.full = append(c.full, disk.Name)
		}
	}
}

// tellHalted tells kubelet, the manager and the log why the guest does not run; empty if it does.
func (l *launcher) tellHalted(why string) {
	if !l.ready.halt(why) {
		return
	}
	if why == "" {
		why = "it goes on"
	}
	_, _ = fmt.Fprintf(l.messages, "The guest is halted: %s\n", why) // a message only
}

// fullMessage returns why a guest is halted whose disks are on full volumes, and what to do.
func fullMessage(disks []string, ephemeral bool) string {
	var names, fields []string
	for _, disk := range disks {
		field := "its size in spec.disks"
		if disk == qemu.RootDisk {
			field = "spec.resource.rootDisk"
		}
		names = append(names, "the "+disk+" disk")
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	where, grow := "where its volume is", fmt.Sprintf(", or increase %s, if the StorageClass can expand volumes", strings.Join(fields, " and "))
	if ephemeral {
		where, grow = "on its node", ""
	}
	return fmt.Sprintf("the volume of %s is full. The guest goes on when %d MiB are free: free space %s%s",
		strings.Join(names, " and "), diskspace.Enough>>20, where, grow)
}
