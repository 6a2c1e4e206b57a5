package system

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Ending is how a system stops.
type Ending int

// The endings.
const (
	PowerOff Ending = unix.LINUX_REBOOT_CMD_POWER_OFF
	Restart  Ending = unix.LINUX_REBOOT_CMD_RESTART
	Halt     Ending = unix.LINUX_REBOOT_CMD_HALT
)

// String names the ending in a sentence.
func (e Ending) String() string {
	switch e {
	case Restart:
		return "restarting"
	case Halt:
		return "halting"
	}
	return "powering off"
}

// stopGrace is how long programs may take to end themselves.
const stopGrace = 5 * time.Second

// End stops all programs, brings what is written to the disks and ends the system. It
// returns only when the kernel refuses.
func (p *Processes) End(ending Ending) error {
	p.StopAll(stopGrace)
	unix.Sync()
	// An overlay keeps its disk busy until it is read-only. Without one, memory is.
	_ = unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	for _, target := range diskMounts("/proc/mounts") {
		if unix.Unmount(target, 0) != nil {
			// Somebody still uses it: it must at least be consistent.
			_ = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
	}
	unix.Sync()
	if err := unix.Reboot(int(ending)); err != nil {
		return fmt.Errorf("%s: %w", ending, err)
	}
	return nil
}

// diskMounts returns where disks are mounted, the last mounted first.
func diskMounts(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	// proc(5): space, tab, newline and backslash are written in octal.
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var targets []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && strings.HasPrefix(fields[0], "/dev/") {
			targets = append(targets, unescape.Replace(fields[1]))
		}
	}
	slices.Reverse(targets)
	return targets
}
