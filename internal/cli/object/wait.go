package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// Waiting is the flags of a command that can wait.
type Waiting struct {
	Wait    bool
	Timeout time.Duration
}

// AddFlags adds the flags to fs. what is what the command waits for: "the machine is ready".
func (w *Waiting) AddFlags(fs *pflag.FlagSet, what string) {
	fs.BoolVar(&w.Wait, "wait", false, "wait until "+what)
	w.Timeout = 5 * time.Minute
	fs.Var(usage.Positive(&w.Timeout), "timeout", "maximum time to wait")
}

// Interval is that of reads while a command waits.
const Interval = 250 * time.Millisecond

// Until waits until look returns true, and prints each change of the line that it returns to progress. The error after
// the timeout, or when the user interrupts the command, has the last line.
func Until(ctx context.Context, timeout time.Duration, progress io.Writer, look func(context.Context) (done bool, line string, err error)) error {
	said := ""
	err := wait.PollUntilContextTimeout(ctx, Interval, timeout, true, func(ctx context.Context) (bool, error) {
		done, line, err := look(ctx)
		if done || err != nil {
			return done, err
		}
		if line != said {
			said = line
			_, err = fmt.Fprintln(progress, line)
		}
		return false, err
	})
	switch last := cmp.Or(said, "no status yet"); {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("interrupted; last: %s", last)
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("not within %v; last: %s", timeout, last)
	}
	return err
}
