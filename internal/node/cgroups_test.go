package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCgroups(t *testing.T) {
	type found struct {
		Version int
		Missing []string
	}
	all := neededControllers
	const four = "cpuset cpu io memory pids\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  found
	}{
		{
			"version 2", map[string]string{"cgroup.controllers": four, "cgroup.subtree_control": "memory\n", "cgroup.procs": "1\n", "memory.stat": ""},
			found{2, nil},
		},
		{
			"version 2, without some", map[string]string{"cgroup.controllers": "cpu io memory\n", "cgroup.subtree_control": ""},
			found{2, []string{"cpuset", "pids"}},
		},
		{
			"a container with processes at the top",
			map[string]string{"cgroup.controllers": four, "cgroup.subtree_control": "pids\n", "cgroup.type": "domain\n", "cgroup.procs": "1\n7\n"},
			found{2, []string{"cpu", "cpuset", "memory"}},
		},
		{
			"a container whose processes are further down",
			map[string]string{"cgroup.controllers": four, "cgroup.subtree_control": "", "cgroup.type": "domain\n", "cgroup.procs": ""},
			found{2, nil},
		},
		{"version 2, not to be written", map[string]string{"cgroup.controllers": four}, found{2, all}},
		{
			"version 1", map[string]string{"cpu,cpuacct/cgroup.procs": "1\n", "cpuset/cgroup.procs": "", "memory/cgroup.procs": "", "pids/cgroup.procs": ""},
			found{1, nil},
		},
		{
			"both: the limits are those of version 1",
			map[string]string{"cpu/cgroup.procs": "", "memory/cgroup.procs": "", "unified/cgroup.controllers": four, "unified/cgroup.procs": ""},
			found{1, []string{"cpuset", "pids"}},
		},
		{"version 1 without limits of memory", map[string]string{"cpu,cpuacct/cgroup.procs": "", "pids/cgroup.procs": ""}, found{0, all}},
		{"none", nil, found{0, all}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := found{Version: cgroups(root)}
			if missing := missingControllers(root, got.Version); len(missing) > 0 {
				got.Missing = missing
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	if version := cgroups(nowhere); version != 0 {
		t.Errorf("no such folder: %d", version)
	}
}
