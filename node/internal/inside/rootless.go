package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
)

// BecomeRoot waits until this process has its IDs in its new user namespace, and executes this program again with these arguments: it lost
// the capabilities of root when it was executed without the IDs. It returns only if it fails.
func BecomeRoot(args []string) error {
	n, err := unix.Read(handover.InsideFD, make([]byte, 1))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(handover.InsideFD, make([]byte, 1))
	}
	if err != nil || n != 1 {
		return fmt.Errorf("wait for the IDs of the user namespace: %d bytes, %w", n, err)
	}
	if os.Getuid() != 0 {
		return errors.New("the user is not root in the user namespace")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s again: %w", self, unix.Exec(self, append([]string{self}, args...), os.Environ()))
}

// endWithParent has the kernel end this process with the one that has started it, also if that happened already: then its
// socket is closed, which whoever waits for it notices. A program that gains capabilities loses what its parent has set.
func endWithParent() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// KeptIn returns the folders in the directory of a node that the node writes to.
func KeptIn(dir string) (paths []string) {
	for folder := range kept {
		paths = append(paths, filepath.Join(dir, folder))
	}
	return paths
}

// Remove deletes folders of a node without root, where files can be of any ID of the user namespace.
func Remove(paths []string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
