package transcript

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// Left returns the command lines of processes that use a data directory: as an argument or as their
// working directory.
func Left(dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, process := range processes {
		// A process that ends meanwhile does not count; a zombie has no command line.
		words, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		line := string(bytes.ReplaceAll(bytes.TrimRight(words, "\x00"), []byte{0}, []byte{' '}))
		place := Place(process)
		if strings.Contains(line, dir) || place == dir || strings.HasPrefix(place, dir+"/") {
			found = append(found, filepath.Base(process)+" "+line)
		}
	}
	return found
}

// Place returns the working directory of a process, given its directory in /proc; "" if it has
// ended. QEMU works in / to be harmless, so its place is that of its log.
func Place(process string) string {
	place, _ := os.Readlink(filepath.Join(process, "cwd"))
	if log, err := os.Readlink(filepath.Join(process, "fd", "1")); place == "/" && err == nil {
		return filepath.Dir(log)
	}
	return place
}
