package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

// versions knows which Kubernetes versions there are: that of keelson-kube, and those of the programs beside it that
// carry a version in their name.
type versions struct {
	mu    sync.Mutex
	known map[string]known
}

// known is a program that was asked for its version.
type known struct {
	modified time.Time
	version  string
}

// find returns the program with the components of a version, and that version; an empty one means that of main.
func (v *versions) find(main, version string) (binary, found string, err error) {
	own, err := v.of(main)
	if err != nil {
		return "", "", fmt.Errorf("%w: %s does not tell its version: %w", cluster.ErrUnavailable, main, err)
	}
	if version == "" || version == own {
		return main, own, nil
	}
	beside := main + "-" + version
	if _, err := os.Stat(beside); err == nil {
		return beside, version, nil
	}
	return "", "", fmt.Errorf("%w: there is no %s; this manager has %s. Set spec.version to one of these, or put the components of that version at %s",
		cluster.ErrVersion, version, strings.Join(v.all(main, own), ", "), beside)
}

// all returns the versions that there are, the newest last.
func (v *versions) all(main, own string) []string {
	all := []string{own}
	matches, _ := filepath.Glob(main + "-v*") // the pattern is well formed
	for _, match := range matches {
		all = append(all, strings.TrimPrefix(match, main+"-"))
	}
	slices.SortFunc(all, func(a, b string) int {
		x, y := parseVersion(a), parseVersion(b)
		return slices.Compare([]int{x.major, x.minor, x.patch}, []int{y.major, y.minor, y.patch})
	})
	return slices.Compact(all)
}

// of asks a program for the version of its components, once.
func (v *versions) of(binary string) (string, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if k, ok := v.known[binary]; ok && k.modified.Equal(info.ModTime()) {
		return k.version, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "kube-apiserver", "--version").Output()
	if err != nil {
		return "", err
	}
	if v.known == nil {
		v.known = map[string]known{}
	}
	k := known{modified: info.ModTime(), version: trimVersion(string(out))}
	v.known[binary] = k
	return k.version, nil
}

// release is a parsed version.
type release struct{ major, minor, patch int }

// parseVersion takes v1.36.3; what cannot be read is zero.
func parseVersion(text string) release {
	var r release
	_, _ = fmt.Sscanf(text, "v%d.%d.%d", &r.major, &r.minor, &r.patch) // see above
	return r
}
