package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is how many units of time /proc counts in a second: USER_HZ, 100 on every architecture that Go supports.
const ticks = 100

// ProcessorTime returns how long a process has used a processor, in steps of 10 ms: see proc_pid_stat(5).
func ProcessorTime(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name in parentheses may have spaces and parentheses in it.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3 // numbered as in the manual, where the state after the name is 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("%s has %d fields after the name, want more than %d", path, len(fields), stime)
	}
	var sum int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	rollup, err := readKilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, err
	}
	status, err := readKilobytes(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	return Memory{RSS: rollup["Rss"], PSS: rollup["Pss"], Peak: status["VmHWM"], File: status["RssFile"]}, nil
}

// ParentOf returns the id of the parent of a process.
func ParentOf(pid int) (int, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("%s does not tell the parent", path)
}

// readKilobytes reads the lines "Name:  123 kB" of a file in /proc and returns bytes by name.
func readKilobytes(path string) (map[string]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		number, isSize := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		if !isSize {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found[name] = n << 10
	}
	return found, nil
}

// totalMemory returns the memory of the machine in bytes, 0 if it cannot be told.
func totalMemory() int64 {
	found, err := readKilobytes("/proc/meminfo")
	if err != nil {
		return 0
	}
	return found["MemTotal"]
}

// processorModel returns what the processor calls itself, or "".
func processorModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Load returns the average number of processes that wanted a processor in the last minute, or a negative number if
// it cannot be told.
func Load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}

// FileSystem names what a directory is on: on a tmpfs no write waits for a disk.
func FileSystem(dir string) string {
	names := map[int64]string{0xef53: "ext4", 0x1021994: "tmpfs", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs"}
	var info syscall.Statfs_t
	if err := syscall.Statfs(dir, &info); err != nil {
		return "unknown"
	}
	if name, ok := names[int64(info.Type)]; ok {
		return name
	}
	return fmt.Sprintf("%#x", info.Type)
}
