package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// component is what one component needs when nothing happens.
type component struct {
	Name   string         `json:"name"`
	Memory measure.Memory `json:"memory"`
	Shim   measure.Memory `json:"shim"`      // of the process that waits for the component
	Busy   float64        `json:"processor"` // share of one processor, while idle
}

// measureIdle starts a control plane with everything, leaves it alone for a while and looks at its processes. It
// returns what the floor is made like.
func (r *results) measureIdle(ctx context.Context, dir string, o options) (_ *model, err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: o.binary, Nodes: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if err := cp.Settle(ctx); err != nil {
		return nil, err
	}
	pids, err := findComponents(dir)
	if err != nil {
		return nil, err
	}
	// The first seconds belong to the start.
	if err := pause(ctx, o.Idle/2); err != nil {
		return nil, err
	}
	before, began := map[string]time.Duration{}, time.Now()
	for name, pid := range pids {
		if before[name], err = measure.ProcessorTime(pid); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, o.Idle/2); err != nil {
		return nil, err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		c, err := look(name, pids[name])
		if err != nil {
			return nil, err
		}
		after, err := measure.ProcessorTime(pids[name])
		if err != nil {
			return nil, err
		}
		c.Busy = float64(after-before[name]) / float64(time.Since(began))
		r.Components = append(r.Components, c)
	}
	m := &model{dir: dir, config: cp.Config()}
	if m.etcd, err = commandLine(pids["etcd"]); err != nil {
		return nil, err
	}
	m.apiserver, err = commandLine(pids["kube-apiserver"])
	return m, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// findComponents returns the pids of the components, by name.
func findComponents(dir string) (map[string]int, error) {
	statuses, err := process.Peek(filepath.Join(dir, "processes"))
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, s := range statuses {
		pids[s.ID] = s.PID
	}
	return pids, nil
}

func look(name string, pid int) (component, error) {
	c := component{Name: name}
	var err error
	if c.Memory, err = measure.MemoryOf(pid); err != nil {
		return c, err
	}
	parent, err := parentOf(pid)
	if err != nil {
		return c, err
	}
	c.Shim, err = measure.MemoryOf(parent)
	return c, err
}

func parentOf(pid int) (int, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("%s does not tell the parent", path)
}

func commandLine(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// versions asks keelson-kube what is built in.
func versions(ctx context.Context, binary string) (string, error) {
	output, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its versions: %w", binary, err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", ", "), nil
}

// fileSystem names what a directory is on: on a tmpfs no write waits for a disk.
func fileSystem(dir string) string {
	names := map[int64]string{0xef53: "ext4", 0x1021994: "tmpfs", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs"}
	var info syscall.Statfs_t
	if err := syscall.Statfs(dir, &info); err != nil {
		return "unknown"
	}
	if name, ok := names[int64(info.Type)]; ok {
		return name
	}
	return fmt.Sprintf("%#x", info.Type)
}
