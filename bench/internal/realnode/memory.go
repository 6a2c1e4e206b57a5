// Package realnode measures the memory of the processes of a real node.
package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// The two processes of keelson-node; all others are called as their programs.
const (
	partOutside = "keelson-node, on the machine"
	partInside  = "keelson-node, inside"
)

// The parts of a node in the order of tables: those that it always has, and those of each Pod.
var (
	Always = []string{"containerd", "kubelet", "kube-proxy", partInside, partOutside}
	PerPod = []string{"containerd-shim-runc-v2", "pause"}
)

// Whole is the figure with the sum of the parts that a node always has.
const Whole = "whole node"

// Inside returns the first process in the namespaces of a node: the only child of its process on the machine.
func Inside(outside int) (int, error) {
	all, err := children(outside)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("the node, process %d, has %d children, want 1", outside, len(all))
	}
	return all[0], nil
}

// SetMemory sets the PSS of all parts of a node, as sums over its Pods, one more figure for each node. outside is its
// process on the machine. What containers run is not part of the node.
func SetMemory(s *harness.Sample, outside int) error {
	inside, err := Inside(outside)
	if err != nil {
		return err
	}
	pids := map[string][]int{partOutside: {outside}, partInside: {inside}}
	programs, err := Programs(outside)
	if err != nil {
		return err
	}
	for _, part := range slices.Concat(Always, PerPod) {
		if len(programs[part]) > 0 {
			pids[part] = programs[part]
		}
	}
	whole := 0.0
	for part, of := range pids {
		sum, err := PSS(of)
		if err != nil {
			return err
		}
		s.Set(part, append(s.Figures[part], sum)...)
		if slices.Contains(Always, part) {
			whole += sum
		}
	}
	s.Set(Whole, append(s.Figures[Whole], whole)...)
	for _, part := range Always {
		if len(pids[part]) == 0 {
			return fmt.Errorf("%s does not run", part)
		}
	}
	return nil
}

// PSS returns the sum of the PSS of processes.
func PSS(pids []int) (sum float64, err error) {
	for _, pid := range pids {
		m, err := harness.MemoryOf(pid)
		if err != nil {
			return 0, err
		}
		sum += m.PSS
	}
	return sum, nil
}

// Programs returns the processes in a node by the names of their programs. outside is its process on the machine.
func Programs(outside int) (map[string][]int, error) {
	inside, err := Inside(outside)
	if err != nil {
		return nil, err
	}
	below, err := descendants(inside)
	if err != nil {
		return nil, err
	}
	found := map[string][]int{}
	for _, pid := range below {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		program, _, _ := strings.Cut(string(line), "\x00")
		found[filepath.Base(program)] = append(found[filepath.Base(program)], pid)
	}
	return found, nil
}

// children returns the children of all threads of a process.
func children(pid int) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("process %d has ended, or this kernel does not tell children (CONFIG_PROC_CHILDREN)", pid)
	}
	var found []int
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
			found = append(found, child)
		}
	}
	return found, nil
}

// descendants returns the children of a process, their children, and so on.
func descendants(pid int) ([]int, error) {
	all, err := children(pid)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(all); i++ {
		more, err := children(all[i])
		if err != nil {
			continue // it has ended meanwhile
		}
		all = append(all, more...)
	}
	return all, nil
}
