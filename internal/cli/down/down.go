// Package down is the command `keelson down`.
package down

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/up"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// stopTimeout is the deadline for a running keelson to stop: it finishes reconciles (30 s), then
// stops a real node (30 s), puts machines to sleep (60 s), and stops five components in three consecutive groups.
const stopTimeout = 180 * time.Second

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	var deleteData bool
	var stateDir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop what `keelson up` started",
		Long: `Stop Keelson and its control plane on this host, also after a crash. The data stays for the
next ` + "`keelson up`" + `, unless it is ephemeral or --delete-data is set.

Machines are powered off. Those with spec.onHostShutdown: Sleep are put to sleep instead, and resume
where they were at the next ` + "`keelson up`" + `. A warning names each one whose memory could not be saved.

With --state-dir it does this to the machines of a ` + "`keelson manager`" + ` that does not run, and stops
its clusters. The next manager starts them again.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stateDir != "" {
				for _, other := range []string{"data-dir", "ephemeral", "delete-data"} {
					if cmd.Flags().Changed(other) {
						return usage.Errorf("--state-dir names the state of a keelson manager and cannot be combined with --%s", other)
					}
				}
				return runStateDir(cmd, stateDir)
			}
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			return run(cmd, dir, deleteData)
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&deleteData, "delete-data", false, "also delete the data directory with all objects in it")
	cmd.Flags().Var(usage.NonEmpty(&stateDir), "state-dir", "`directory` of the keelson manager whose machines and clusters to stop")
	return cmd
}

// runStateDir stops the machines and clusters of a manager that is not running.
func runStateDir(cmd *cobra.Command, dir string) error {
	began := time.Now()
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("the state directory of the manager: %w", err)
	}
	_, err := stopHost(cmd.Context(), dir, false)
	if errors.Is(err, process.ErrLocked) {
		return fmt.Errorf("a manager uses %s: stop it first, otherwise it restarts everything: %w", dir, err)
	}
	if err != nil {
		return err
	}
	if err := warnOfUnsaved(cmd.ErrOrStderr(), dir, began); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Stopped all machines and clusters of %s in %.1f s. The next manager starts them again.\n",
		dir, time.Since(began).Seconds())
	return err
}

// warnOfUnsaved writes a warning for each machine that was shut down since a time instead of being put to sleep. The program of the
// instance may have done that, whose output is elsewhere.
func warnOfUnsaved(w io.Writer, dir string, since time.Time) error {
	for _, warning := range instance.DescribeUnsaved(dir, since) {
		if _, err := fmt.Fprintln(w, warning); err != nil {
			return err
		}
	}
	return nil
}

// stopHost stops the machines and clusters in a state directory, and reports whether there were
// clusters.
func stopHost(ctx context.Context, dir string, deleteData bool) (bool, error) {
	if err := instance.StopMachines(ctx, dir, deleteData); err != nil {
		return false, err
	}
	clusters, err := local.StopAll(ctx, manager.ClusterDir(dir))
	return clusters > 0, err
}

func run(cmd *cobra.Command, dir string, deleteData bool) error {
	began := time.Now()
	unlock, err := lock(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := instance.AwaitEnding(cmd.Context(), cmd.ErrOrStderr(), dir); err != nil {
		return err
	}
	report, err := controlplane.Inspect(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if !report.Exists {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Nothing to stop: Keelson was never started in %s.\n", dir)
		return err
	}
	deleteData = deleteData || report.Ephemeral
	stopped, err := stop(cmd.Context(), report, deleteData)
	if err != nil {
		return err
	}
	what := "Nothing was running in " + report.Dir
	if stopped {
		what = fmt.Sprintf("Stopped in %.1f s", time.Since(began).Seconds())
	}
	if !deleteData {
		if err := warnOfUnsaved(cmd.ErrOrStderr(), report.Dir, began); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s. The data stays in %s.\n", what, report.Dir)
		return err
	}
	if err := up.UnmergeKubeconfig(report.Dir); err != nil {
		// A kubeconfig that cannot be read must not keep the data.
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v\n", err); err != nil {
			return err
		}
	}
	if err := instance.Remove(report.Dir); err != nil {
		return fmt.Errorf("%s, but its data could not be deleted: %w", what, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s. The data in %s is deleted.\n", what, report.Dir)
	return err
}

// lock makes this command the only one that stops the instance of a data directory. Another one would take it for a keelson that is starting.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	file, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // the caller reports it
	}
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	unlock = func() { _ = file.Close() }
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		unlock()
		return nil, fmt.Errorf("wait for another `keelson down`: %w", err)
	}
	return unlock, nil
}

// stop stops the process of the instance, if there is one, and then everything it has left running.
func stop(ctx context.Context, report controlplane.Report, deleteData bool) (stopped bool, err error) {
	if pid := report.ManagerPID; pid != 0 {
		if err := stopManager(ctx, pid); err != nil {
			return false, fmt.Errorf("%w; the logs are in %s", err, filepath.Join(report.Dir, "logs"))
		}
		stopped = true
	}
	clusters, err := stopHost(ctx, report.Dir, deleteData)
	if err != nil {
		return false, err
	}
	stopped = stopped || clusters
	left, err := controlplane.StopAll(ctx, report.Dir)
	if errors.Is(err, process.ErrLocked) {
		return false, fmt.Errorf("another keelson was started in the meantime: %w", err)
	}
	return stopped || left, err
}

// stopManager asks the process of an instance to stop and waits until it has ended. It is not
// enough to wait for the lock of the data directory: an ephemeral instance deletes the directory
// last, which must not hit a new instance there.
func stopManager(ctx context.Context, pid int) error {
	err := instance.SignalManager(pid)
	if errors.Is(err, instance.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop keelson (pid %d): %w", pid, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, stopTimeout, true, func(context.Context) (bool, error) {
		return process.IsGone(pid), nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; keelson (pid %d) is still stopping", pid)
	default:
		return fmt.Errorf("keelson (pid %d) has not stopped within %s: to force it, run `kill -9 %d`, and then this command again",
			pid, stopTimeout, pid)
	}
}
