package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"golang.org/x/sys/unix"
)

// newNode returns the snapshotter of one more node of a machine, which sees the shared layers read-only.
func (m machine) newNode(name string) *snapshotter {
	m.Helper()
	root := filepath.Join(m.root, name)
	made, err := overlay.NewSnapshotter(root, overlay.AsynchronousRemove, overlay.WithRemapIDs)
	m.must(err)
	m.Cleanup(func() { _ = made.Close() })
	seen := filepath.Join(root, Mountpoint)
	m.must(os.Mkdir(seen, 0o700), unix.Mount(string(m.layers()), seen, "", unix.MS_BIND, ""))
	m.Cleanup(func() { _ = unix.Unmount(seen, 0) })
	m.must(unix.Mount("", seen, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	return &snapshotter{Snapshotter: made, layers: m.layers(), own: filepath.Join(root, "snapshots")}
}

// unpack makes two layers, as containerd does. It returns which of them were shared.
func (m machine) unpack(s *snapshotter, ids ...string) (shared []bool) {
	m.Helper()
	parent := ""
	for i, id := range ids {
		key := "k8s.io/1/extract-1 " + id
		mounts, err := s.Prepare(m.Context(), key, parent, snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotRef: id}))
		m.must(err)
		shared = append(shared, mounts[0].ReadOnly())
		if !mounts[0].ReadOnly() {
			m.must(mount.WithTempMount(m.Context(), mounts, func(root string) error {
				return os.WriteFile(filepath.Join(root, fmt.Sprint("file", i)), []byte(id), 0o644)
			}))
		}
		parent = "k8s.io/2/" + id
		m.must(s.Commit(m.Context(), parent, key))
	}
	return shared
}

// inode returns the number and the owner of a file in a container.
func (m machine) inode(s *snapshotter, key, parent, file string, opts ...snapshots.Opt) (inode uint64, owner uint32) {
	m.Helper()
	mounts, err := s.Prepare(m.Context(), key, parent, opts...)
	m.must(err)
	m.must(mount.WithTempMount(m.Context(), mounts, func(root string) error {
		info, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			return err
		}
		inode, owner = info.Sys().(*syscall.Stat_t).Ino, info.Sys().(*syscall.Stat_t).Uid
		return nil
	}))
	return inode, owner
}

func TestNodesShareTheLayersOfContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: mounts need root")
	}
	m := newMachine(t)
	first, second := m.newNode("node"), m.newNode("node-2")
	ids := []string{"sha256:" + strings.Repeat("01", 32), "sha256:" + strings.Repeat("02", 32)}
	if shared := m.unpack(first, ids...); shared[0] || shared[1] {
		t.Fatalf("the first node found layers: %v", shared)
	}
	if shared := m.unpack(second, ids...); !shared[0] || !shared[1] {
		t.Fatalf("the second node did not find the layers: %v", shared)
	}
	top := "k8s.io/2/" + ids[1]
	mapped := snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotUIDMapping: "0:100000:1000", snapshots.LabelSnapshotGIDMapping: "0:100000:1000"})
	containers := map[*snapshotter][]string{}
	for _, file := range []string{"file0", "file1"} {
		containers[first] = append(containers[first], "a"+file)
		containers[second] = append(containers[second], "b"+file, "c"+file)
		want, _ := m.inode(first, "a"+file, top, file)
		if got, owner := m.inode(second, "b"+file, top, file); got != want || owner != 0 {
			t.Errorf("%s: inode %d of %d, want %d", file, got, owner, want)
		}
		if got, owner := m.inode(second, "c"+file, top, file, mapped); got != want || owner != 100000 {
			t.Errorf("%s in a user namespace: inode %d of %d, want %d of 100000", file, got, owner, want)
		}
	}
	if err := os.WriteFile(filepath.Join(m.root, "node-2", Mountpoint, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a node writes to the shared layers: %v", err)
	}
	// Deleted by one node, the layers stay for the other one, and are deleted with the last.
	for i, s := range []*snapshotter{first, second} {
		if left := m.shared(); len(left) != 2 {
			t.Errorf("before they were removed from node %d, %q are shared", i, left)
		}
		for _, key := range append(containers[s], top, "k8s.io/2/"+ids[0]) {
			m.must(s.Remove(m.Context(), key))
		}
		m.must(s.Cleanup(m.Context()))
	}
	if left := m.shared(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
