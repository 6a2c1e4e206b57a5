package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// startsBackground reports whether another process has to run in the background: that process has --detach, too.
func (o *options) startsBackground() bool { return o.detach && o.reportFD == 0 }

// startDetached runs this command again in the background, and shows its events until everything is
// ready.
func (o *options) startDetached(ctx context.Context, cmd *cobra.Command, dir string) error {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return err
	}
	if report.ManagerPID != 0 {
		return alreadyRunning(ctx, dir)
	}
	child, events, err := launch(dir, o.kept)
	if err != nil {
		return fmt.Errorf("start keelson in the background: %w", err)
	}
	// Ctrl-C during the start stops the child, which has its own session and does not get the
	// signal.
	stopRelaying := context.AfterFunc(ctx, func() { _ = child.Signal(syscall.SIGTERM) })
	p := startPrinter(cmd.OutOrStdout())
	ready, err := relay(events, p)
	p.stop()
	if stopRelaying() && ready { // not ready means that it is exiting
		return child.Release()
	}
	state, waitErr := child.Wait()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted: Keelson was stopped again")
	case waitErr != nil:
		return waitErr
	default:
		return fmt.Errorf("keelson exited before it was ready (%s); see %s", state, filepath.Join(dir, "logs"))
	}
}

// launch starts the background process, with more arguments than this one has. Its output goes to a file, its events to the returned
// reader.
func launch(dir string, more []string) (*os.Process, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return nil, nil, err
	}
	out, err := openOutput(filepath.Join(dir, "logs", "up.log"))
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	cmd := exec.Command(self, slices.Concat([]string{"--report-fd=3"}, os.Args[1:], more)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return cmd.Process, r, nil
}

// maxOutput is the size in bytes at which the file with the output of the background process is rotated.
const maxOutput = 1 << 20

// openOutput opens the file for the output of the background process. Logs go elsewhere, so only a
// crash writes much: rotation before a start is enough. One earlier file is kept.
func openOutput(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() >= maxOutput {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}
