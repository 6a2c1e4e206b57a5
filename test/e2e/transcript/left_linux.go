package transcript

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// Left returns the command lines of processes that have to do with a data directory: they name it, or work in it.
func Left(dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, process := range processes {
		// A process that goes while we look is none that is left; one that has ended has no command line.
		words, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		line := string(bytes.ReplaceAll(bytes.TrimRight(words, "\x00"), []byte{0}, []byte{' '}))
		place := Place(process)
		if strings.Contains(line, dir) || place == dir || strings.HasPrefix(place, dir+"/") {
			found = append(found, filepath.Base(process)+" "+line)
		}
	}
	return found
}

// Place returns the directory that a process works in, given its directory in /proc; "" if it is gone. A QEMU works in /, where
// it can do no harm: its place is that of its log.
func Place(process string) string {
	place, _ := os.Readlink(filepath.Join(process, "cwd"))
	if log, err := os.Readlink(filepath.Join(process, "fd", "1")); place == "/" && err == nil {
		return filepath.Dir(log)
	}
	return place
}
