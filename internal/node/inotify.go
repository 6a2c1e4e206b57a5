package node

import (
	"fmt"
	"syscall"
)

// What a user has a limited number of, fs.inotify.max_user_instances.
const (
	nodeInotify         = 9
	controlPlaneInotify = 11
)

// InotifyWarning says what to do if this user has too few inotify instances left for so many more real nodes and control planes; it is empty
// if there are enough.
func InotifyWarning(nodes, controlPlanes int) string {
	need := nodes*nodeInotify + controlPlanes*controlPlaneInotify
	return inotifyWarning(need, countInotify(need))
}

func inotifyWarning(need, have int) string {
	if have >= need {
		return ""
	}
	return fmt.Sprintf("%d more inotify instances are needed, and this user may have %d, so a node may not become ready: "+
		"`sysctl -w fs.inotify.max_user_instances=1024` raises the limit", need, have)
}

// countInotify returns how many more inotify instances this user may have, up to a number.
func countInotify(most int) int {
	var all []int
	for range most {
		fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if err != nil {
			break
		}
		all = append(all, fd)
	}
	for _, fd := range all {
		_ = syscall.Close(fd) // nothing was written
	}
	return len(all)
}
