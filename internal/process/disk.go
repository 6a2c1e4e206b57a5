package process

import (
	"io"
	"syscall"
)

// errNotDir is the error for a path below a plain file.
const errNotDir = syscall.ENOTDIR

// step is called at every point where a crash makes a difference. The crash tests replace it.
var step = func(string) {}

// closeQuietly closes a file whose close error does not matter: it was only read, its write has failed, or it was
// already closed with a check.
func closeQuietly(c io.Closer) { _ = c.Close() }
