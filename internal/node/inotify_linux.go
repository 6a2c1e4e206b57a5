package node

import "syscall"

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
