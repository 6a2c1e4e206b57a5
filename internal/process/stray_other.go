//go:build !linux

package process

import (
	"strconv"
	"strings"
)

// markedProcesses returns the processes that have this entry in their environment, as far as ps prints it.
func markedProcesses(entry string) []identity {
	var found []identity
	for _, line := range ps("-axwwE", "-o", "pid=,command=") {
		number, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		pid, err := strconv.Atoi(number)
		if err != nil || !strings.Contains(command+" ", " "+entry+" ") {
			continue
		}
		if id, err := identify(pid); err == nil {
			found = append(found, id)
		}
	}
	return found
}
