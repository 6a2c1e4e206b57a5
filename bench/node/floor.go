package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// inside prepares a command that runs in the node's file system, where containerd's socket is at its usual place. ctr
// mounts what a container is to see before it asks containerd to run it.
func (b *bench) inside(ctx context.Context, words ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(b.node.inside), "--mount", "--pid", "--"}, words...)...)
}

// runtimeVersion asks for the version of containerd, whose client is of the same build.
func (b *bench) runtimeVersion(ctx context.Context) (string, error) {
	output, err := b.inside(ctx, programs+"ctr", "--version").Output()
	fields := strings.Fields(string(output))
	if err != nil || len(fields) == 0 {
		return "", fmt.Errorf("ask ctr for its version: %q: %w", output, err)
	}
	return fields[len(fields)-1], nil
}

// oneOfFloor is a container of the floor that is about to run.
type oneOfFloor struct {
	command *exec.Cmd
	// output is the file that has what its program prints, as this program finds it.
	output string
}

// containerOfFloor prepares the next container of the floor. What its program prints goes to a file: of what goes through
// ctr, it throws away what it has not read yet when it hears that the container has ended.
func (b *bench) containerOfFloor(ctx context.Context) oneOfFloor {
	b.floors++
	id := fmt.Sprintf("floor-%d", b.floors)
	output := "/run/keelson-bench/" + id
	return oneOfFloor{
		command: b.inside(ctx, programs+"ctr", "--namespace", "k8s.io", "run", "--rm", "--snapshotter", b.node.snapshotter,
			// By its path, as kubelet's containers have it: another version may be in PATH.
			"--runtime", programs+"containerd-shim-runc-v2", "--log-uri", "file://"+output,
			// Below the node's own, so that it goes with the node.
			"--cgroup", "/keelson-"+b.node.id+"/"+id, image, id),
		output: b.node.path(output),
	}
}

// run waits for the end of the container, and returns when its program was started.
func (c oneOfFloor) run() (time.Time, error) {
	if said, err := c.command.CombinedOutput(); err != nil {
		return time.Time{}, fmt.Errorf("ctr run: %w: %s", err, said)
	}
	output, err := os.ReadFile(c.output)
	if err != nil {
		return time.Time{}, err
	}
	return startOf(string(output))
}

// burstOfFloor runs containers by ctr from a time on.
func (b *bench) burstOfFloor(ctx context.Context, n int) (*burst, error) {
	containers := make([]oneOfFloor, n)
	for i := range containers {
		containers[i] = b.containerOfFloor(ctx)
	}
	due := nextDue(floor, time.Now(), b.options.rest)
	if err := measure.Pause(ctx, time.Until(due)); err != nil {
		return nil, err
	}
	lags := make([]time.Duration, n)
	var group errgroup.Group
	for i, container := range containers {
		group.Go(func() error {
			began, err := container.run()
			lags[i] = began.Sub(due)
			return err
		})
	}
	return &burst{Lags: lags}, group.Wait()
}

// startOf reads what the program started has printed.
func startOf(text string) (time.Time, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the container has printed no time, but %q", text)
	}
	return time.Unix(0, n), nil
}
