package up

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// handOver asks the process of an instance to stop and to leave everything running for the next one.
const handOver = syscall.SIGUSR1

// handOverTimeout is the deadline for the process of an instance to stop after handOver.
const handOverTimeout = 30 * time.Second

// Process describes the process of an instance, for a second `keelson up` and for `keelson status`.
type Process struct {
	PID            int               `json:"pid"`
	Detached       bool              `json:"detached"`
	Flags          map[string]string `json:"flags"`               // those that were set, by name
	ConfigSum      string            `json:"configSum,omitempty"` // of the file of --config
	Controllers    []string          `json:"controllers,omitempty"`
	MetricsAddress string            `json:"metricsAddress,omitempty"`
}

// perCommand are the flags that concern a command and not the instance.
var perCommand = []string{"data-dir", "detach", "help", "merge-kubeconfig", "report-fd"}

// needDown are the flags that cannot change while the instance runs.
var needDown = []string{"ephemeral", "no-controllers", "node", "nodes"}

// flagsOf returns the flags of the instance that were set.
func flagsOf(given *pflag.FlagSet) map[string]string {
	flags := map[string]string{}
	given.Visit(func(f *pflag.Flag) {
		if !slices.Contains(perCommand, f.Name) {
			flags[f.Name] = textOf(f.Value)
		}
	})
	return flags
}

// textOf returns the text that sets a flag to its present value.
func textOf(value pflag.Value) string {
	list, ok := value.(pflag.SliceValue)
	if !ok {
		return value.String()
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(list.GetSlice()) // a Builder does not fail
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// changedFlags returns the names of the given flags that have another value in the running instance, in order. A flag that is not given keeps
// its value.
func changedFlags(running, given map[string]string, fs *pflag.FlagSet) []string {
	var names []string
	for name, value := range given {
		before, wasGiven := running[name]
		if !wasGiven {
			before = fs.Lookup(name).DefValue
		}
		if value != before {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sumOf returns a digest of a file; "" if it cannot be read.
func sumOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// keep sets the flags that were not given to their values in the running instance.
func (o *options) keep(running map[string]string, fs *pflag.FlagSet) error {
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if flag := fs.Lookup(name); flag == nil || flag.Changed {
			continue
		}
		if err := fs.Set(name, running[name]); err != nil {
			return fmt.Errorf("set --%s as in the running instance: %w", name, err)
		}
		o.kept = append(o.kept, "--"+name+"="+running[name])
	}
	o.given = flagsOf(fs)
	return nil
}

func runningFile(dir string) string { return filepath.Join(dir, "up.json") }

// record records this process as that of the instance.
func (o *options) record(dir string) error {
	p := Process{PID: os.Getpid(), Detached: o.reportFD != 0, Flags: o.given, ConfigSum: sumOf(o.manager.Config), MetricsAddress: o.manager.MetricsAddress}
	if !o.noControllers {
		p.Controllers = o.selected()
	}
	return atomicfile.WriteJSON(runningFile(dir), p, atomicfile.Volatile)
}

// ReadProcess returns the record of the process of an instance; nil if it has none.
func ReadProcess(dir string, pid int) (*Process, error) {
	raw, err := os.ReadFile(runningFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found Process
	if json.Unmarshal(raw, &found) != nil || found.PID != pid {
		return nil, nil // of an earlier process
	}
	return &found, nil
}

// again handles an instance that is already running: with the same flags there is nothing to do, and with others this
// command takes over from its process. done is true if there is nothing to start.
func (o *options) again(ctx context.Context, w io.Writer, fs *pflag.FlagSet, dir string) (done bool, err error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil || report.ManagerPID == 0 {
		return false, err
	}
	found, err := ReadProcess(dir, report.ManagerPID)
	if err != nil {
		return false, err
	}
	if found == nil || !report.APIReady {
		return false, alreadyRunning(ctx, dir) // still starting or stopping
	}
	changed := changedFlags(found.Flags, o.given, fs)
	if _, given := o.given["config"]; given && sumOf(o.manager.Config) != found.ConfigSum && !slices.Contains(changed, "config") {
		changed = append(changed, "config")
	}
	if len(changed) == 0 {
		if o.mergeKubeconfig {
			if err := mergeRunning(dir, report); err != nil {
				return false, err
			}
		}
		_, err := fmt.Fprintf(w, "Already up. %s", instance.Describe(report, time.Now()))
		return true, err
	}
	if err := refuseChange(found, changed, dir); err != nil {
		return false, err
	}
	if err := o.keep(found.Flags, fs); err != nil {
		return false, err
	}
	if err := o.validate(fs); err != nil {
		return false, err
	}
	if _, err := fmt.Fprintf(w, "Changing %s of the running instance; machines and clusters keep running.\n", dashed(changed)); err != nil {
		return false, err
	}
	return false, takeOver(ctx, found.PID)
}

// refuseChange returns why the flags of a running instance cannot change; nil if they can.
func refuseChange(found *Process, changed []string, dir string) error {
	down := instance.Command("down", dir)
	if fixed := slices.DeleteFunc(slices.Clone(changed), func(name string) bool { return !slices.Contains(needDown, name) }); len(fixed) > 0 {
		return fmt.Errorf("keelson is running (pid %d), and %s cannot change while it runs: run `%s` first", found.PID, dashed(fixed), down)
	}
	if !found.Detached {
		return fmt.Errorf("keelson is running in the foreground (pid %d) with another value of %s: stop it there, or run `%s` first", found.PID, dashed(changed), down)
	}
	return nil
}

// dashed lists flags for people.
func dashed(names []string) string { return "--" + strings.Join(names, ", --") }

// takeOver makes the process of an instance stop and leave everything running.
func takeOver(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, handOver); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("take over from keelson (pid %d): %w", pid, err)
	}
	_ = syscall.Kill(pid, syscall.SIGCONT) // it may be suspended
	gone := func(context.Context) (bool, error) { return process.IsGone(pid), nil }
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, handOverTimeout, true, gone); err != nil {
		return fmt.Errorf("keelson (pid %d) has not stopped after %s: %w", pid, handOverTimeout, cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

// untilHandOver returns a context that also ends when another process takes over. handedOver reports whether that happened.
func untilHandOver(parent context.Context) (ctx context.Context, handedOver func() bool) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, handOver)
	happened := make(chan struct{})
	go func() {
		select {
		case <-signals:
			close(happened)
			cancel()
		case <-parent.Done():
			cancel()
		}
	}()
	return ctx, func() bool {
		select {
		case <-happened:
			return true
		default:
			return false
		}
	}
}

// mergeRunning adds the context of a running instance to the kubeconfig of the user.
func mergeRunning(dir string, report controlplane.Report) error {
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return err
	}
	return mergeKubeconfig(report.Kubeconfig, config.TLSClientConfig)
}
