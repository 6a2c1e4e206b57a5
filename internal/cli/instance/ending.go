package instance

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// endingTimeout is the time for a killed program to exit. The kernel needs milliseconds, or a
	// second or two on a busy machine.
	endingTimeout = 10 * time.Second
	// noticeDelay is the time after which a message explains the wait.
	noticeDelay = 300 * time.Millisecond
)

// AwaitEnding waits for the program of the instance of dir to exit after a kill -9: until then it
// holds the data directory. After noticeDelay, a message on w says so. It does not wait for a program
// that was not killed. It gives up after 10 s; the lock then reports that the directory is in use.
func AwaitEnding(ctx context.Context, w io.Writer, dir string) error {
	began, reported := time.Now(), false
	ended := func(context.Context) (bool, error) {
		pid, err := process.Holder(controlplane.Processes(dir))
		if err != nil || pid == 0 || !process.IsEnding(pid) {
			return true, err
		}
		if !reported && time.Since(began) > noticeDelay {
			_, _ = fmt.Fprintf(w, "Waiting for the killed keelson (pid %d) to exit ...\n", pid)
			reported = true
		}
		return false, nil
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, endingTimeout, true, ended)
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for the killed keelson to exit: %w", err)
	}
	return nil
}
