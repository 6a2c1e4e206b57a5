// Package logs is the command `keelson logs`.
package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// controllers is the component whose log is shown by default: the controllers.
const controllers = "keelson"

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	var follow bool
	tail := -1
	cmd := &cobra.Command{
		Use:   "logs [COMPONENT]",
		Short: "Print the log of the controllers, or of another component",
		Long: `Print the log of the controllers of Keelson on this host, or of a component such as etcd or
kube-apiserver. It also works when Keelson is stopped.`,
		Example: `  # The controllers
  keelson logs

  # The last 20 lines of the API server, and what follows
  keelson logs kube-apiserver --tail 20 --follow`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%s takes one COMPONENT; got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if tail < -1 {
				return usage.Errorf("--tail=%d: must be -1 for all lines, or a number of lines", tail)
			}
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			component := controllers
			if len(args) == 1 {
				component = args[0]
			}
			file, err := find(dir, component)
			if err != nil {
				return err
			}
			return show(cmd.Context(), cmd.OutOrStdout(), file, tail, follow)
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until Ctrl-C")
	cmd.Flags().IntVar(&tail, "tail", tail, "number of lines at the end to print; -1: all")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		dir, err := flags.Dir()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return components(dir), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// components returns the components that have a log; none if dir cannot be read.
func components(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "logs", "*.log")) // only a bad pattern is an error
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(filepath.Base(file), ".log")
	}
	return names
}

// find returns the log file of a component.
func find(dir, component string) (string, error) {
	names := components(dir)
	switch {
	case slices.Contains(names, component):
		return filepath.Join(dir, "logs", component+".log"), nil
	case len(names) == 0:
		return "", fmt.Errorf("there are no logs in %s: Keelson was never started there, or set --data-dir to the data directory", dir)
	}
	return "", usage.Errorf("there is no log of %q; there are those of %s", component, strings.Join(names, ", "))
}

// pollInterval is the time between two looks at a file that is followed.
const pollInterval = 200 * time.Millisecond

// show prints the last lines of a file, or all of them if tail is -1. With follow it prints new ones until ctx ends, also
// after a rotation of the file.
func show(ctx context.Context, w io.Writer, path string, tail int, follow bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	if err := skip(file, tail); err != nil {
		return err
	}
	for {
		if _, err := io.Copy(w, file); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
		next, err := reopened(file, path)
		if err != nil {
			return err
		}
		if next != file {
			// What was written between the last read and the rotation.
			_, err := io.Copy(w, file)
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			file = next
		}
	}
}

// reopened returns a new file if the one of this path was rotated or truncated, else the same.
func reopened(file *os.File, path string) (*os.File, error) {
	current, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil // it is being rotated
	}
	if err != nil {
		return nil, err
	}
	ours, err := file.Stat()
	if err != nil {
		return nil, err
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	if os.SameFile(ours, current) && current.Size() >= at {
		return file, nil
	}
	return os.Open(path)
}

// skip moves to the last lines of a file; -1 means all lines.
func skip(file *os.File, lines int) error {
	if lines < 0 {
		return nil
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const block = 32 << 10
	found := -1 // the newline at the end of the file ends the last line
	for at := end; at > 0; {
		size := min(block, at)
		at -= size
		part := make([]byte, size)
		if _, err := file.ReadAt(part, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if at+size == end && part[size-1] != '\n' {
			found = 0
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if found++; found == lines {
				_, err := file.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}
