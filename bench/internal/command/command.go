// Package command is what the command lines of all benchmarks have in common.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	// As in keelson itself: takes over when a benchmark was started as the shim of a component.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

// Output are the options of all benchmarks; those of each embed it.
type Output struct {
	// JSON is the file for the results; empty is none.
	JSON string
	// Strict makes the program fail when a target was missed.
	Strict bool
}

// AddFlags adds a flag for each option to fs, with the present values as defaults.
func (o *Output) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.JSON, "json", o.JSON, "`file` for the results, also those of each round")
	fs.BoolVar(&o.Strict, "strict", o.Strict, "exit with 1 when a target was missed")
}

// save writes results to the file for them, if there is to be one.
func (o Output) save(results any) error {
	if o.JSON == "" {
		return nil
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.JSON, append(data, '\n'), 0o600)
}

// output returns the options themselves, from whatever embeds them.
func (o Output) output() Output { return o }

// Options are those of a benchmark, which embed Output.
type Options interface{ output() Output }

// Results are what a benchmark has found out.
type Results interface {
	// Report writes everything for people, as markdown. It returns how many targets were missed.
	Report(text *strings.Builder) (missed int)
}

// Progress tells somebody who waits what is going on.
type Progress struct{ to io.Writer }

// Say writes a line.
func (p Progress) Say(format string, args ...any) { fmt.Fprintf(p.to, format+"\n", args...) }

// Benchmark is a benchmark with options O and results R.
type Benchmark[O Options, R Results] struct {
	// Parse reads the command line. What is wrong with it is written to stderr, and is the error.
	Parse func(args []string) (O, error)
	// Measure finds everything out. It ends early when ctx does.
	Measure func(ctx context.Context, options O, progress Progress) (R, error)
	// Finish is what there is to do when the report is written; nil is nothing.
	Finish func(O, R) error
}

// Main is the main function of a benchmark: it measures until it is interrupted at most. The program ends with status 2 if
// its command line is wrong, and with 1 after an error.
func (b Benchmark[O, R]) Main() {
	options, err := b.Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := b.Run(ctx, options, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	if options.output().Strict && missed > 0 {
		os.Exit(1)
	}
}

// Run measures everything, writes the report to stdout, progress to stderr and the results to their file, and returns how
// many targets were missed.
func (b Benchmark[O, R]) Run(ctx context.Context, options O, stdout, stderr io.Writer) (missed int, err error) {
	results, err := b.Measure(ctx, options, Progress{to: stderr})
	if err != nil {
		return 0, err
	}
	var text strings.Builder
	missed = results.Report(&text)
	if _, err := io.WriteString(stdout, text.String()); err != nil {
		return missed, err
	}
	if b.Finish != nil {
		if err := b.Finish(options, results); err != nil {
			return missed, err
		}
	}
	return missed, options.output().save(results)
}

// Parse parses a command line, whose flags set options; there are no arguments beside them. The flag --quick takes the
// options quick in place of the defaults; flags still count then, also those before it. Check returns what is wrong
// with the whole.
func Parse[O any](fs *flag.FlagSet, args []string, options *O, quick O, check func(*O) error) error {
	short := fs.Bool("quick", false, "only find out whether this benchmark works; flags still count")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *short {
		*options = quick
		if err := fs.Parse(args); err != nil {
			return err
		}
	}
	err := check(options)
	if fs.NArg() > 0 {
		err = fmt.Errorf("there are no arguments, but %q", fs.Args())
	}
	if err != nil {
		fmt.Fprintln(fs.Output(), err)
	}
	return err
}

// Sizes returns what sets a flag to the numbers of a list, in order and without zeros. They are numbers of something,
// and at most most.
func Sizes(to *[]int, of string, most int) func(text string) error {
	return func(text string) error {
		var sizes []int
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n > most {
				return fmt.Errorf("%q is no number of %s, which are at most %d", part, of, most)
			}
			if n > 0 {
				sizes = append(sizes, n)
			}
		}
		slices.Sort(sizes)
		*to = slices.Compact(sizes)
		return nil
	}
}
