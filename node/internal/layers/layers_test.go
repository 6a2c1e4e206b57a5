package layers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

const layer = "a-layer"

// machine is a folder with the shared layers and the folders of nodes.
type machine struct {
	*testing.T
	root string
}

func (m machine) layers() Dir { return Dir(filepath.Join(m.root, "shared")) }

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir()}
	m.must(os.Mkdir(string(m.layers()), 0o700))
	return m
}

func (m machine) must(errs ...error) {
	m.Helper()
	if err := errors.Join(errs...); err != nil {
		m.Fatal(err)
	}
}

// snapshot returns a snapshot of a node with a file of this content, or without files.
func (m machine) snapshot(node, content string) string {
	m.Helper()
	path := filepath.Join(m.root, node, "snapshots", "1")
	m.must(os.MkdirAll(filepath.Join(path, filesName), 0o700))
	if err := os.Symlink(string(m.layers()), filepath.Join(m.root, node, Mountpoint)); err != nil && !errors.Is(err, fs.ErrExist) {
		m.Fatal(err) // the node sees it by a mount
	}
	if content != "" {
		m.must(os.WriteFile(filepath.Join(path, filesName, "file"), []byte(content), 0o600))
	}
	return path
}

func (m machine) expect(snapshot, content string, isShared bool) {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(snapshot, filesName, "file"))
	if err != nil || string(data) != content || isLink(filepath.Join(snapshot, filesName)) != isShared {
		m.Errorf("%s has %q, %v; want %q, shared: %t", snapshot, data, err, content, isShared)
	}
}

// shared returns the names of the shared layers.
func (m machine) shared() (names []string) {
	entries, err := os.ReadDir(string(m.layers()))
	m.must(err)
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestALayerStaysWhileASnapshotUsesIt(t *testing.T) {
	m := newMachine(t)
	first, second := m.snapshot("node", "content"), m.snapshot("node-2", "")
	if adopted, err := m.layers().Adopt(second, layer); adopted || err != nil {
		t.Fatalf("adopted a layer that is not there: %t, %v", adopted, err)
	}
	for range 2 { // once more changes nothing
		m.must(m.layers().Publish(first, layer))
	}
	if adopted, err := m.layers().Adopt(second, layer); !adopted || err != nil {
		t.Fatalf("adopted: %t, %v", adopted, err)
	}
	m.must(os.RemoveAll(first), m.layers().Sweep())
	m.expect(second, "content", true)
	m.must(os.RemoveAll(filepath.Dir(filepath.Dir(second))), m.layers().Sweep())
	if left := m.shared(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestOfTwoNodesThatUnpackALayerOneKeepsIt(t *testing.T) {
	m := newMachine(t)
	first, second := m.snapshot("node", "content"), m.snapshot("node-2", "content")
	m.must(m.layers().Publish(first, layer), m.layers().Publish(second, layer))
	for _, snapshot := range []string{first, second} {
		m.expect(snapshot, "content", true)
	}
	entries, err := os.ReadDir(second)
	m.must(err)
	if len(entries) != 2 {
		t.Errorf("the second one has %v", entries)
	}
}

// Tools that copy the folders of nodes and layers may make several files of one with several links.
func TestACopiedLayerStays(t *testing.T) {
	m := newMachine(t)
	m.must(m.layers().Publish(m.snapshot("node", "content"), layer))
	to := newMachine(t)
	m.must(os.CopyFS(to.layers().path(layer), os.DirFS(m.layers().path(layer))), to.layers().Sweep())
	snapshot := to.snapshot("node", "")
	if adopted, err := to.layers().Adopt(snapshot, layer); !adopted || err != nil {
		t.Fatalf("adopted: %t, %v", adopted, err)
	}
	to.expect(snapshot, "content", true)
}

// A process can be killed after any of these steps, which are those of publish, adopt and remove.
func TestKilled(t *testing.T) {
	type state struct {
		machine
		snapshot string
	}
	of := func(s state, name string) string { return s.layers().path(layer, name) }
	publishing := []func(state) error{
		func(s state) error { return os.Mkdir(s.layers().path(layer), 0o700) },
		func(s state) error { return os.Symlink(target(layer), of(s, filesName)) },
		func(s state) error { return os.WriteFile(of(s, usedName), nil, 0o600) },
		func(s state) error { return s.layers().writeUsed(layer) },
		func(s state) error { return s.layers().use(s.snapshot, layer) },
		func(s state) error { return exchange(filepath.Join(s.snapshot, filesName), of(s, filesName)) },
	}
	next := func(s state) string { return filepath.Join(s.snapshot, nextName) }
	adopting := []func(state) error{
		func(s state) error { return s.layers().Publish(s.machine.snapshot("other", "content"), layer) },
		func(s state) error { return s.layers().use(s.snapshot, layer) },
		func(s state) error { return os.Symlink(target(layer), next(s)) },
		func(s state) error { return exchange(filepath.Join(s.snapshot, filesName), next(s)) },
	}
	removing := []func(state) error{
		func(s state) error {
			other := s.machine.snapshot("other", "content")
			return errors.Join(s.layers().Publish(other, layer), os.RemoveAll(other))
		},
		func(s state) error { return os.Remove(of(s, usedName)) },
		func(s state) error { return os.Remove(filepath.Join(of(s, filesName), "file")) },
		func(s state) error { return os.Remove(of(s, filesName)) },
	}
	for name, steps := range map[string][]func(state) error{"publish": publishing, "adopt": adopting, "remove": removing} {
		for killed := range len(steps) + 1 {
			for what, repair := range map[string]func(state) error{
				"publish": func(s state) error { return s.layers().Publish(s.snapshot, layer) },
				"sweep and publish": func(s state) error {
					return errors.Join(s.layers().Sweep(), s.layers().Publish(s.snapshot, layer))
				},
				"another node publishes": func(s state) error {
					return errors.Join(s.layers().Publish(s.machine.snapshot("third", "content"), layer), s.layers().Publish(s.snapshot, layer))
				},
			} {
				m := newMachine(t)
				s := state{m, m.snapshot("node", "content")}
				for _, step := range steps[:killed] {
					m.must(step(s))
				}
				if data, err := os.ReadFile(filepath.Join(s.snapshot, filesName, "file")); err != nil || string(data) != "content" {
					t.Errorf("%s, killed after step %d: the snapshot has %q, %v", name, killed, data, err)
				}
				m.must(repair(s))
				m.expect(s.snapshot, "content", true)
				for _, node := range []string{"node", "other", "third"} {
					m.must(os.RemoveAll(filepath.Join(m.root, node)))
				}
				m.must(m.layers().Sweep())
				if left := m.shared(); len(left) > 0 {
					t.Errorf("%s, killed after step %d, then %s: left %q", name, killed, what, left)
				}
			}
		}
	}
}

func TestLayerName(t *testing.T) {
	const id = "sha256:47673fc15d59d3946f21d0d5a5077ac8f6ac479255e49d6947b12296a7a5fc38"
	want := layerName(id)
	if len(want) != 43 {
		t.Errorf("the name is %q", want)
	}
	for snapshot, want := range map[string]string{
		"k8s.io/17/" + id: want, "k8s.io/17/extract-1-abc= " + id: "", "": "", "a-container": "", "sha256:../..": "",
		"sha512:47673fc15d59d3946f21d0d5a5077ac8f6ac479255e49d6947b12296a7a5fc3847673fc15d59d3946f21d0d5a5077ac8f6ac479255e49d6947b12296a7a5fc38": "",
	} {
		if got := layerName(snapshot); got != want {
			t.Errorf("%q: %q, want %q", snapshot, got, want)
		}
	}
}
