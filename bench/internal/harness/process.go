package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryOf returns the memory of processes in bytes (PSS, which counts shared pages in part).
func MemoryOf(pids ...int) (sum float64, err error) {
	for _, pid := range pids {
		rollup, err := readProc(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		sum += rollup["Pss"]
	}
	return sum, nil
}

// PIDs returns all processes of the host.
func PIDs() (pids []int, err error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		if pid, notNumber := strconv.Atoi(filepath.Base(folder)); notNumber == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Parent returns the parent of a process, such as the shim that waits for a component.
func Parent(pid int) (int, error) {
	status, err := readProc(fmt.Sprintf("/proc/%d/status", pid))
	return int(status["PPid"]), err
}

// CommandLine returns the arguments of a process, the first of which is the program.
func CommandLine(pid int) ([]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), err
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

// load returns the load average of the last minute, if it is known.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
