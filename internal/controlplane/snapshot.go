package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/snapshotfile"
)

// ErrNotRunning means that etcd does not run, so that no snapshot can be taken.
var ErrNotRunning = errors.New("etcd does not run")

// Snapshot describes a snapshot of etcd.
type Snapshot struct {
	// Revision has all writes up to it.
	Revision int64
	// Services is the network of Services, in which the objects have addresses. Empty means the usual one.
	Services string
}

// TakeSnapshot writes a consistent snapshot of a running etcd to a new file, mode 0600, and verifies it. It returns ErrNotRunning if
// etcd does not run.
func TakeSnapshot(ctx context.Context, path, binary, file string) (Snapshot, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Snapshot{}, err
	}
	dir := layout(abs)
	s, err := loadState(dir)
	if err != nil {
		return Snapshot{}, err
	}
	runs, err := etcdRuns(dir)
	if err != nil {
		return Snapshot{}, err
	}
	if !runs {
		return Snapshot{}, ErrNotRunning
	}
	if err := saveSnapshot(ctx, binary, dir, file); err != nil {
		return Snapshot{}, err
	}
	revision, err := snapshotfile.Inspect(ctx, file)
	return Snapshot{Revision: revision, Services: s.Services}, err
}

// saveSnapshot writes a snapshot of etcd to a file. It returns ErrNotRunning when etcd ends before that: etcdctl would wait for it until
// its timeout, also when the cluster is gone.
func saveSnapshot(ctx context.Context, binary string, dir layout, file string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go wait.UntilWithContext(ctx, func(context.Context) {
		if runs, err := etcdRuns(dir); err == nil && !runs {
			cancel(ErrNotRunning)
		}
	}, time.Second)
	err := etcdctl(ctx, binary, dir, "snapshot", "save", file)
	if err != nil && errors.Is(context.Cause(ctx), ErrNotRunning) {
		return ErrNotRunning
	}
	return err
}

// etcdRuns reports whether the etcd of a data directory runs.
func etcdRuns(dir layout) (bool, error) {
	components, err := inspectComponents(dir)
	return slices.ContainsFunc(components, func(c ComponentReport) bool {
		return c.Name == nameEtcd && c.State == string(process.Running)
	}), err
}

// Fork prepares a new data directory for the objects of a snapshot of another control plane, unless it has data already. Start then gives
// it certificates and keys of its own, and brings the objects into etcd, for which it needs the file. A Fork that was killed may be
// repeated.
func Fork(path, file string, of Snapshot) error {
	dir := layout(path)
	if _, err := os.Stat(filepath.Join(dir.etcdData(), "member")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := dir.create(); err != nil {
		return err
	}
	s, err := loadState(dir)
	if err != nil {
		return err
	}
	s.Services, s.Fork = cmp.Or(of.Services, serviceNetwork), file
	return saveState(dir, s)
}

// loadFork brings the objects of a snapshot into the etcd of a fork, before kube-apiserver starts. It omits what belongs to the nodes of the
// other cluster, and its tokens, which the API of the fork rejects.
func (cp *ControlPlane) loadFork(ctx context.Context) error {
	cp.mu.Lock()
	file := cp.state.Fork
	cp.mu.Unlock()
	if file == "" {
		return nil
	}
	err := snapshotfile.ReadObjects(ctx, file, func(objects io.Reader) error {
		return runToolWith(ctx, cp.opts.Binary, cp.dir.sockets(), objects, "etcd-load", "--endpoint=unix://"+etcdSocket, "--foreign")
	})
	if err != nil {
		return fmt.Errorf("load the objects of the snapshot: %w. If its file is gone, delete the Cluster and create it again", err)
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.state.Fork = ""
	return saveState(cp.dir, cp.state)
}

// restoreEtcd restores a snapshot of etcd into a new directory, and adds a number to its revision. It verifies the hash of the snapshot.
func restoreEtcd(ctx context.Context, binary, workDir, snapshot, to, bump string) error {
	err := runTool(ctx, binary, workDir, "etcdutl", "snapshot", "restore", snapshot, "--data-dir="+to,
		"--name="+memberName, "--initial-cluster="+initialCluster, "--initial-advertise-peer-urls=unix://"+peerSocket,
		"--bump-revision="+bump, "--mark-compacted")
	if err != nil {
		return fmt.Errorf("restore etcd's data: %w", err)
	}
	return closeFiles(to)
}
