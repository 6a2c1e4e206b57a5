package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Memory is what a process has of the machine's memory, in bytes.
type Memory struct {
	// RSS counts every page that the process has in memory; PSS counts shared pages in part.
	RSS, PSS float64
	// Peak is the highest RSS since the process started.
	Peak float64
	// File is the part of RSS that the kernel can take back: the program and other files.
	File float64
}

// Plus returns the sum of two.
func (m Memory) Plus(o Memory) Memory {
	return Memory{RSS: m.RSS + o.RSS, PSS: m.PSS + o.PSS, Peak: m.Peak + o.Peak, File: m.File + o.File}
}

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	rollup, err := readProc(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, err
	}
	status, err := readProc(fmt.Sprintf("/proc/%d/status", pid))
	return Memory{RSS: rollup["Rss"], PSS: rollup["Pss"], Peak: status["VmHWM"], File: status["RssFile"]}, err
}

// ParentOf returns the parent of a process.
func ParentOf(pid int) (int, error) {
	status, err := readProc(fmt.Sprintf("/proc/%d/status", pid))
	return int(status["PPid"]), err
}

// readProc reads the lines "Name: 123" and "Name: 123 kB" of a file in /proc. It returns numbers and bytes.
func readProc(path string) (map[string]float64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		text, isSize := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		if isSize {
			n *= 1024
		}
		found[name] = n
	}
	return found, nil
}

// StartOf returns when a process was started, in steps of 10 ms.
func StartOf(pid int) (time.Time, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	const starttime = 22 - 3 // see ProcessorTime
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= starttime {
		return time.Time{}, fmt.Errorf("process %d has no start time", pid)
	}
	n, err := strconv.ParseFloat(fields[starttime], 64)
	if err != nil {
		return time.Time{}, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, err
	}
	first, _, _ := strings.Cut(string(uptime), " ")
	now, err := strconv.ParseFloat(first, 64)
	return time.Now().Add(-time.Duration((now - n/ticks) * float64(time.Second))), err
}

// ticks is the number of them in a second: USER_HZ, on every architecture that Go supports.
const ticks = 100

// ProcessorTime returns for how many seconds processes have used a processor, in steps of 10 ms: see proc_pid_stat(5). A
// process that has ended does not count.
func ProcessorTime(pids ...int) float64 {
	sum := 0.0
	for _, pid := range pids {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// The name in parentheses may contain spaces and parentheses.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		const utime, stime = 14 - 3, 15 - 3 // numbered as in the manual, where the state after the name is 3
		for i := utime; i <= stime && i < len(fields); i++ {
			n, _ := strconv.ParseFloat(fields[i], 64)
			sum += n / ticks
		}
	}
	return sum
}

// FileSystem names the file system of a directory: on a tmpfs no write waits for a disk.
func FileSystem(ctx context.Context, dir string) string {
	name, err := exec.CommandContext(ctx, "stat", "--file-system", "--format=%T", dir).Output()
	if err != nil {
		return "an unknown file system"
	}
	return strings.TrimSpace(string(name))
}

// machine describes this machine in one line.
func machine() string {
	text := fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	cpu, _ := os.ReadFile("/proc/cpuinfo") // only on Linux
	for line := range strings.Lines(string(cpu)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			text += " (" + strings.TrimSpace(value) + ")"
			break
		}
	}
	memory, _ := readProc("/proc/meminfo")
	return fmt.Sprintf("%s, %.0f GiB of memory, %s", text, memory["MemTotal"]/(1<<30), runtime.Version())
}

// load returns the load average of the last minute, 0 if it is not known.
func load() float64 {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	average, _ := strconv.ParseFloat(first, 64)
	return average
}

// MemoryWithShim returns the memory of a component, and that of its parent, the shim that waits for it.
func MemoryWithShim(pid int) (m, shim Memory, err error) {
	if m, err = MemoryOf(pid); err != nil {
		return m, shim, err
	}
	parent, err := ParentOf(pid)
	if err != nil {
		return m, shim, err
	}
	shim, err = MemoryOf(parent)
	return m, shim, err
}
