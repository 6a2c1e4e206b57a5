package process

import (
	"bytes"
	"os"
	"strconv"
)

// markedProcesses returns the processes that have this entry in their environment, as far as it can be read.
func markedProcesses(entry string) []identity {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer closeQuietly(proc)
	names, _ := proc.Readdirnames(-1) // use what could be read
	var found []identity
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		before, err := readStat(pid)
		if err != nil || before.gone || !hasEntry(pid, entry) {
			continue
		}
		// The environment belongs to the process with this start time only if that has not changed.
		if after, err := readStat(pid); err == nil && after.start == before.start {
			found = append(found, identity{PID: pid, Start: before.start})
		}
	}
	return found
}

func hasEntry(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for found := range bytes.SplitSeq(data, []byte{0}) {
		if string(found) == entry {
			return true
		}
	}
	return false
}
