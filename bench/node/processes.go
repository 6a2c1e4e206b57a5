package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
)

// realNode is what there is to know about a node that runs.
type realNode struct {
	// outside is the process of the node on the machine, inside the first one in its namespaces.
	outside, inside int
	// id names its cgroup.
	id string
	// snapshotter is containerd's store for root file systems.
	snapshotter string
}

// Where programs are inside the node.
const programs = "/run/keelson/programs/"

// findNode finds the node that runs in the data directory of a control plane.
func findNode(ctx context.Context, dir string) (*realNode, error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	n := &realNode{}
	for _, c := range report.Components {
		if c.Name == "node" {
			n.outside = c.PID
		}
	}
	if n.outside == 0 {
		return nil, errors.New("the node does not run")
	}
	if n.inside, err = onlyChild(n.outside); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(node.Settings{Dir: controlplane.NodeDir(dir)}.File())
	if err != nil {
		return nil, err
	}
	var settings node.Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("the settings of the node: %w", err)
	}
	n.id = settings.ID
	config, err := os.ReadFile(n.path("/run/keelson/containerd.toml"))
	if err != nil {
		return nil, err
	}
	n.snapshotter, err = snapshotterOf(string(config))
	return n, err
}

// path returns where this program finds a file of the node.
func (n *realNode) path(inside string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.inside, inside)
}

// snapshotterOf reads which store containerd was told to use.
func snapshotterOf(config string) (string, error) {
	for line := range strings.Lines(config) {
		if name, value, found := strings.Cut(line, "="); found && strings.TrimSpace(name) == "snapshotter" {
			return strconv.Unquote(strings.TrimSpace(value))
		}
	}
	return "", errors.New("the configuration of containerd names no snapshotter")
}

// process is one of the processes of a node.
type process struct {
	pid int
	// words are its command line.
	words []string
}

// name is what the node calls it.
func (p process) name() string {
	if len(p.words) == 0 {
		return ""
	}
	return filepath.Base(p.words[0])
}

// onlyChild returns the id of the one child of a process.
func onlyChild(pid int) (int, error) {
	all, err := children(pid)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("process %d has %d children, want 1", pid, len(all))
	}
	return all[0].pid, nil
}

// children returns the children of a process; those of all of its threads.
func children(pid int) ([]process, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("process %d has ended, or this kernel does not tell children (CONFIG_PROC_CHILDREN)", pid)
	}
	var found []process
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for word := range strings.FieldsSeq(string(data)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if err != nil || len(line) == 0 {
				continue // it has ended
			}
			found = append(found, process{pid: child, words: strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")})
		}
	}
	return found, nil
}

// descendants returns the children of a process, their children, and so on.
func descendants(pid int) ([]process, error) {
	all, err := children(pid)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(all); i++ {
		more, err := children(all[i].pid)
		if err != nil {
			continue // it has ended meanwhile
		}
		all = append(all, more...)
	}
	return all, nil
}
