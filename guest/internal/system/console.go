package system

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Console is where the guest tells a person what it does: a line for each thing, with
// the seconds since the kernel began. The kernel's log gets the lines too.
type Console struct {
	mu      sync.Mutex
	console *os.File
	kernel  *os.File
}

// OpenConsole opens the console that the kernel was given. Where that fails, only the
// kernel's log gets the lines.
func OpenConsole() (*Console, error) {
	console, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	kernel, kernelErr := os.OpenFile("/dev/kmsg", os.O_WRONLY|unix.O_CLOEXEC, 0)
	if kernelErr != nil {
		kernel = nil
	}
	if err != nil {
		console = nil
	}
	return &Console{console: console, kernel: kernel}, err
}

// Printf prints one line.
func (c *Console) Printf(format string, args ...any) {
	line := strings.TrimSpace(fmt.Sprintf(format, args...))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.console != nil {
		fmt.Fprintf(c.console, "\r[%9.3f] keelson: %s\r\n", sinceBoot(), line)
	}
	if c.kernel != nil {
		// 6 is the level "info", which a quiet kernel keeps off the console.
		fmt.Fprintf(c.kernel, "<6>keelson: %s\n", line)
	}
}

// sinceBoot returns the seconds since the kernel began, suspended time included.
func sinceBoot() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return float64(now.Nano()) / 1e9
}
