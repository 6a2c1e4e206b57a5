package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

// versions finds the available Kubernetes versions: that of keelson-kube, and those of the programs in its directory with a
// version in their name.
type versions struct {
	ctx    context.Context // ends with the engine
	asking singleflight.Group

	mu    sync.Mutex
	known map[string]known
}

// known is the version that a program has reported.
type known struct {
	modified time.Time
	version  string
}

// find returns the program with the components of a version, and that version. An empty version means the version of main.
func (v *versions) find(ctx context.Context, main, version string) (binary, found string, err error) {
	own, err := v.of(ctx, main)
	if err != nil {
		return "", "", fmt.Errorf("%w: %s does not report its version: %w", cluster.ErrUnavailable, main, err)
	}
	if version == "" || version == own {
		return main, own, nil
	}
	other := beside(main, version)
	if _, err := os.Stat(other); err != nil {
		return "", "", fmt.Errorf("%w: %s is not installed; this manager has %s. Set spec.version to one of these, or install the components of that version as %s",
			cluster.ErrVersion, version, strings.Join(namedVersions(main, own), ", "), other)
	}
	got, err := v.of(ctx, other)
	if err != nil {
		return "", "", fmt.Errorf("%w: %s does not report its version: %w", cluster.ErrUnavailable, other, err)
	}
	if err := checkVersion(other, version, got); err != nil {
		return "", "", fmt.Errorf("%w: %w", cluster.ErrVersion, err)
	}
	return other, version, nil
}

// beside returns the path of the program with the components of another version than that of main.
func beside(main, version string) string { return main + "-" + version }

// namedVersions returns the version of main and those that the names of the programs beside it have, in ascending order.
func namedVersions(main, own string) []string {
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

// of returns the Kubernetes version of a program. The version is cached until the program changes. Concurrent callers share one
// run of the program, and none waits longer than its own context.
func (v *versions) of(ctx context.Context, binary string) (string, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	k := v.known[binary]
	v.mu.Unlock()
	if k.version != "" && k.modified.Equal(info.ModTime()) {
		return k.version, nil
	}
	answer := v.asking.DoChan(binary, func() (any, error) { return v.ask(binary, info.ModTime()) })
	select {
	case a := <-answer:
		version, _ := a.Val.(string)
		return version, a.Err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ask runs a program to get its version, and caches the version.
func (v *versions) ask(binary string, modified time.Time) (string, error) {
	found, err := ask(v.ctx, binary)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known = map[string]known{}
	}
	v.known[binary] = known{modified: modified, version: found.Version}
	return found.Version, nil
}

// release is a parsed version.
type release struct{ major, minor, patch int }

// parseVersion parses a version such as v1.36.3. Parts that cannot be parsed are zero.
func parseVersion(text string) release {
	var r release
	_, _ = fmt.Sscanf(text, "v%d.%d.%d", &r.major, &r.minor, &r.patch) // see above
	return r
}
