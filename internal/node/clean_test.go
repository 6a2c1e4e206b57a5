package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name    string
		folders []string
		want    []string
	}{
		{"nothing is left", []string{"memory"}, []string{"memory"}},
		{
			"version 1", []string{"memory/keelson-0badcafe/kubepods/besteffort/pod1", "memory/other", "pids/keelson-0badcafe/kubepods"},
			[]string{"memory", "memory/other", "pids"},
		},
		{"version 2", []string{"keelson-0badcafe/kubepods/pod1", "keelson-0badcafe/kubepods/pod2", "init"}, []string{"init"}},
		{
			"another node's", []string{"memory/keelson-0badcafe", "memory/keelson-00000001/kubepods"},
			[]string{"memory", "memory/keelson-00000001", "memory/keelson-00000001/kubepods"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range test.folders {
				if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := clean(t.Context(), root, "keelson-0badcafe", time.Second); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, below(t, root)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A cgroup with a process in it cannot be removed; here a file stands for the process.
func TestCleanWaitsForTheLastProcess(t *testing.T) {
	root := t.TempDir()
	pod := filepath.Join(root, "memory", "keelson-0badcafe", "pod1")
	process := filepath.Join(pod, "process")
	if err := errors.Join(os.MkdirAll(pod, 0o755), os.WriteFile(process, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	err := clean(t.Context(), root, "keelson-0badcafe", 3*cleanInterval)
	if err == nil || !strings.Contains(err.Error(), pod) {
		t.Errorf("while there is a process: %v, want an error that names the cgroup", err)
	}
	done := make(chan error, 1)
	go func() { done <- clean(t.Context(), root, "keelson-0badcafe", time.Minute) }()
	if err := os.Remove(process); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"memory"}, below(t, root)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// below returns all that is below a folder, in order.
func below(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		paths = append(paths, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
