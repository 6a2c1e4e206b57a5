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

// Save writes results to the file for them, if there is to be one.
func (o *Output) Save(results any) error {
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

// Main is the main function of a benchmark. Parse reads its command line and says what is wrong with it. Run measures
// until it is interrupted at most, writes results to stdout and progress to stderr, and returns how many targets were
// missed. The program ends with status 2 if its command line is wrong, and with 1 after an error.
func Main[O interface{ output() Output }](parse func(args []string) (O, error), run func(ctx context.Context, options O, stdout, stderr io.Writer) (missed int, err error)) {
	options, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx, options, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	if options.output().Strict && missed > 0 {
		os.Exit(1)
	}
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
