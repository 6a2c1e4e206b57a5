// Package debian builds cloud images of Debian.
package debian

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

//go:embed build.sh
var script string

// stopTimeout is how long a build that is interrupted has to remove its files.
const stopTimeout = 10 * time.Second

// Build builds the image at path from the packages of a suite, and writes lines about its progress. It does
// nothing if the file exists. It is safe to repeat after a crash, and while another build runs. The error
// names what is missing on this host.
func Build(ctx context.Context, path, suite string, packages []string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", script, "build.sh", path, suite}, packages...)...)
	// A group of its own, so that an interrupt ends all of it, after which the script removes its files.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	last, copyErr := copyLines(progress, output)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return fmt.Errorf("build the image: %s", last)
	}
	return errors.Join(err, copyErr)
}

// copyLines copies lines, and returns the last one without the name of the script.
func copyLines(to io.Writer, from io.Reader) (last string, err error) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		last = strings.TrimPrefix(lines.Text(), "debian: ")
		if _, writeErr := fmt.Fprintln(to, last); writeErr != nil {
			err = writeErr
		}
	}
	return last, errors.Join(err, lines.Err())
}
