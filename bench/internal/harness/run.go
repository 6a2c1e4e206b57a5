// Package harness holds what the benchmarks share: the command line, rounds in which the contestants take turns, samples
// with their medians and ratios, reports, the processes under test, and a control plane with clients that count requests.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	// As in keelson itself: takes over when a benchmark was started as the shim of a component.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

// Run is one run of a benchmark: its flags, its samples and its report.
type Run struct {
	Name string
	// Notes describe the conditions: the machine, its load, versions.
	Notes   []string
	Samples Samples
	Targets []Target

	// Flags are those of the benchmark; NewRun adds the common ones.
	Flags *flag.FlagSet
	// Rounds is how often each contestant is measured; Parse sets it.
	Rounds int

	quick    bool
	load     string
	progress io.Writer
	text     strings.Builder
}

// NewRun returns a run with the flags of all benchmarks. It reports its progress to the writer.
func NewRun(name string, progress io.Writer) *Run {
	r := &Run{Name: name, Flags: flag.NewFlagSet(name, flag.ContinueOnError), progress: progress, load: load()}
	r.Flags.BoolVar(&r.quick, "quick", false, "only check that the benchmark works: other flags get small defaults")
	return r
}

var errUsage = errors.New("invalid command line")

// Parse parses the command line. The flag --rounds has the default rounds. With --quick, the flags in quick replace the
// defaults.
func (r *Run) Parse(args []string, rounds int, quick string) error {
	r.Flags.IntVar(&r.Rounds, "rounds", rounds, "rounds of each contestant and size")
	err := r.Flags.Parse(args)
	if err == nil && r.quick {
		err = r.Flags.Parse(append(strings.Fields(quick), args...))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case r.Flags.NArg() > 0:
		return fmt.Errorf("%w: unexpected arguments %q", errUsage, r.Flags.Args())
	case r.Rounds < 1:
		return fmt.Errorf("%w: --rounds=%d is too small", errUsage, r.Rounds)
	}
	return nil
}

// Sizes adds a flag for a list of numbers, each at most most. The usage says what they count; 0 is an empty list.
func (r *Run) Sizes(name, usage string, most int, defaults ...int) *[]int {
	values := &defaults
	usage = fmt.Sprintf("%s, separated by commas; 0 skips this part (default %v)", usage, defaults)
	r.Flags.Func(name, usage, func(text string) error {
		var sizes []int
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n > most {
				return fmt.Errorf("%q is not a number from 0 to %d", part, most)
			}
			if n > 0 {
				sizes = append(sizes, n)
			}
		}
		slices.Sort(sizes)
		*values = slices.Compact(sizes)
		return nil
	})
	return values
}

// Main runs a benchmark until it ends or is interrupted.
func Main(name string, measure func(ctx context.Context, r *Run, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := NewRun(name, os.Stderr)
	err := measure(ctx, r, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = r.Finish(os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// Say reports progress.
func (r *Run) Say(format string, args ...any) { fmt.Fprintf(r.progress, format+"\n", args...) }

// Note adds a line about the conditions of the run to the head of the report.
func (r *Run) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Printf adds text below the targets to the report.
func (r *Run) Printf(format string, args ...any) { fmt.Fprintf(&r.text, format, args...) }

// Finish writes the report as markdown.
func (r *Run) Finish(w io.Writer) error {
	r.Note("%d cores (%s); load %s at the start, %s at the end", runtime.NumCPU(), runtime.GOARCH, r.load, load())
	fmt.Fprintf(w, "# bench-%s\n\n%s\n\n", r.Name, time.Now().UTC().Format(time.RFC3339))
	for _, note := range r.Notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
	_, err := fmt.Fprintf(w, "\n%s%s", targetTable(r.Targets), r.text.String())
	return err
}

// Pause waits, unless ctx ends first. It returns at once if d is not positive.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// waitTimeout is how long to wait for anything.
const waitTimeout = 5 * time.Minute

// Until calls ask every interval until it returns no error, for at most five minutes.
func Until(ctx context.Context, interval time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
