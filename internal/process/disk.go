package process

import (
	"encoding/json"
	"fmt"
	"io"
	"syscall"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// errNotDir is the error for a path below a plain file.
const errNotDir = syscall.ENOTDIR

// step is called at every point where a crash makes a difference. The crash tests replace it.
var step = func(string) {}

// writeFile replaces path by v as JSON.
func writeFile(path string, v any, durability atomicfile.Durability) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, append(data, '\n'), durability)
}

// closeQuietly closes a file whose close error does not matter: it was only read, its write has failed, or it was
// already closed with a check.
func closeQuietly(c io.Closer) { _ = c.Close() }
