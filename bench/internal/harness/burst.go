package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Quiet is how long a contestant must write or do nothing to be steady: a change of status waits for a second, and a busy machine.
const Quiet = 5 * time.Second

// few is how many objects warm a contestant up.
const few = 16

var errLate = errors.New("the work was due before everything was ready, because the machine is too busy")

// Contest is what contestants of bursts have in common.
type Contest struct {
	// Start starts the controller of a contestant; it returns nil if this process does the work.
	Start func(ctx context.Context, contestant string) (*Program, error)
	// Measure measures a burst in an empty namespace by MeasureBurst.
	Measure func(ctx context.Context, s *Sample, pid int, namespace string) error
	// Learn looks at what a contestant has made of a few objects.
	Learn func(ctx context.Context, contestant, namespace string) error
	// Empty deletes everything in a namespace. There is no garbage collector.
	Empty func(ctx context.Context, namespace string) error
}

// Burst measures a burst of one contestant, and removes everything after it.
func (c *Cluster) Burst(ctx context.Context, s *Sample, contest Contest) (err error) {
	var namespaces [2]string
	for i := range namespaces {
		if namespaces[i], err = c.Namespace(ctx); err != nil {
			return err
		}
		// The controller must not run meanwhile: it could repair what is deleted.
		defer func() { err = errors.Join(err, contest.Empty(context.WithoutCancel(ctx), namespaces[i])) }()
	}
	controller, err := contest.Start(ctx, s.Contestant)
	if err != nil {
		return err
	}
	return controller.Use(ctx, func(ctx context.Context, pid int) error {
		measure := func(s *Sample, namespace string) (err error) {
			for s.Lead = 15 * time.Second; s.Lead < 5*time.Minute; s.Lead *= 4 {
				if err = contest.Measure(ctx, s, pid, namespace); !errors.Is(err, errLate) {
					return err
				}
				err = errors.Join(err, contest.Empty(ctx, namespace))
			}
			return err
		}
		// A controller that has just started, and an API server, do more for the first objects of a kind.
		if err := measure(&Sample{Contestant: s.Contestant, Size: few}, namespaces[0]); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := contest.Learn(ctx, s.Contestant, namespaces[0]); err != nil {
			return err
		}
		return measure(s, namespaces[1])
	})
}

// Burst is what one contestant does at once for many objects.
type Burst struct {
	// PID is the process that does the work.
	PID int
	// Prepare prepares the work and returns when it is due. The process may write because of that, before. It is nil if the work
	// can start at any time.
	Prepare func(ctx context.Context) (due time.Time, err error)
	// Start does the work when it is due, or has the process do it.
	Start func(ctx context.Context, due time.Time) error
}

// MeasureBurst observes the objects that a burst creates, s.Size of them, until nothing is written any more. It sets the figures
// "seen", how long after the work was due or started each object was seen; "steady", the same for the last write;
// "processor", the processor time of the process; and, of another process than this, "memory" (PSS). It also sets the writes, see SetWrites.
func MeasureBurst[L List](ctx context.Context, c *Cluster, s *Sample, objects Objects[L], burst Burst) error {
	o, err := Observe(ctx, objects, Created)
	if err != nil {
		return err
	}
	defer o.Stop()
	due, before, err := c.prepareBurst(ctx, burst)
	if err != nil {
		return err
	}
	used := ProcessorTime(burst.PID)
	if err := burst.Start(ctx, due); err != nil {
		return err
	}
	seen, err := o.Await(ctx, string(watch.Added), s.Size)
	if err != nil {
		return err
	}
	s.SetSeen("seen", due, seen)
	s.Set("processor", ProcessorTime(burst.PID)-used)
	after, last, err := c.AwaitQuiet(ctx, Quiet)
	if err != nil {
		return err
	}
	s.SetWrites(after.Since(before))
	s.SetTimes("steady", last.Sub(due))
	if burst.PID == os.Getpid() { // which looks for writes
		return nil
	}
	s.Set("processor", ProcessorTime(burst.PID)-used)
	memory, err := MemoryOf(burst.PID)
	s.Set("memory", memory)
	return err
}

// prepareBurst returns when the work is due and the writes before. Work that is due at a given time is so a second later: what the
// machine does long before does not count, nor do preparations at the last moment.
func (c *Cluster) prepareBurst(ctx context.Context, burst Burst) (due time.Time, before Writes, err error) {
	if burst.Prepare == nil {
		before, err = c.Served(ctx)
		return time.Now(), before, err
	}
	if due, err = burst.Prepare(ctx); err != nil {
		return due, nil, err
	}
	if before, _, err = c.AwaitQuiet(ctx, Quiet); err != nil {
		return due, nil, err
	}
	if err = Pause(ctx, time.Until(due.Add(-time.Second))); err == nil && time.Now().After(due) {
		err = errLate
	}
	return due, before, err
}
