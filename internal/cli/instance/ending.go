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
	// endingPatience is how long a program that was killed gets to be gone. It takes the kernel milliseconds, on a machine
	// that is busy or waits for its disk a second or two.
	endingPatience = 10 * time.Second
	// blink is how long nobody wonders what is waited for.
	blink = 300 * time.Millisecond
)

// AwaitEnding waits while the program that looks after the instance of dir is ending, as after kill -9: until it is gone
// it holds the data directory. If that takes longer than a blink, a line on w says so. A program that lives is not waited
// for, and one that is not gone in 10 s is not, either: whoever then wants the directory learns that it is held.
func AwaitEnding(ctx context.Context, w io.Writer, dir string) error {
	began, told := time.Now(), false
	ended := func(context.Context) (bool, error) {
		pid, err := process.Holder(controlplane.Processes(dir))
		if err != nil || pid == 0 || !process.IsEnding(pid) {
			return true, err
		}
		if !told && time.Since(began) > blink {
			_, _ = fmt.Fprintf(w, "Waiting for the killed keelson (pid %d) to exit ...\n", pid)
			told = true
		}
		return false, nil
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, endingPatience, true, ended)
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for the killed keelson to exit: %w", err)
	}
	return nil
}
