package process

import (
	"encoding/json"
	"fmt"
	"io"
	"syscall"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// errNotDir is what the system says about a path below a plain file.
const errNotDir = syscall.ENOTDIR

// step is called at every point where being killed makes a difference. The crash tests replace it.
var step = func(string) {}

// writeFile replaces path by v as JSON.
func writeFile(path string, v any, durability atomicfile.Durability) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.Write(path, append(data, '\n'), durability)
}

// closeQuietly closes a file that was only read, or of which the writing has failed or was closed with a check before:
// its error says nothing new.
func closeQuietly(c io.Closer) { _ = c.Close() }
