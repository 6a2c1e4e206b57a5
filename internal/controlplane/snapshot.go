package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/atomicfile"
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

// The progress of a fork, in state.Fork. The zero value means that there is nothing to do.
const (
	// forkData: etcd has objects of the nodes of the other cluster. kube-apiserver must not start.
	forkData = "data"
	// forkTokens: Secrets have tokens that the other cluster has signed.
	forkTokens = "tokens"
)

// forkName begins the names of folders in which Fork restores a snapshot. Each attempt has its own, because etcdutl of a program that
// was killed may still write to the one before.
const forkName = "fork-"

// Fork makes a new data directory with the objects of a snapshot, unless it has data already. Start then gives it certificates and
// keys of its own, and removes what belongs to the nodes of the other cluster. A Fork that was killed may be repeated.
func Fork(ctx context.Context, path, binary, file string, of Snapshot) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := layout(abs)
	if _, err := os.Stat(filepath.Join(dir.etcdData(), "member")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := dir.create(); err != nil {
		return err
	}
	before, err := filepath.Glob(dir.path(forkName + "*"))
	if err != nil {
		return err
	}
	for _, place := range before { // left by a Fork that was killed
		if err := os.RemoveAll(place); err != nil {
			return err
		}
	}
	place, err := os.MkdirTemp(abs, forkName)
	if err != nil {
		return err
	}
	if err := restoreEtcd(ctx, binary, abs, file, place); err != nil {
		return err
	}
	s, err := loadState(dir)
	if err != nil {
		return err
	}
	// Before the data, so that the data is never used as it is.
	s.Services, s.Fork = of.Services, forkData
	if err := saveState(dir, s); err != nil {
		return err
	}
	if err := os.Remove(dir.etcdData()); err != nil { // it is empty
		return err
	}
	if err := os.Rename(place, dir.etcdData()); err != nil {
		return err
	}
	return atomicfile.SyncDir(abs)
}

// restoreEtcd restores a snapshot of etcd into a new directory. It verifies the hash of the snapshot.
func restoreEtcd(ctx context.Context, binary, workDir, snapshot, to string) error {
	return restoreEtcdAt(ctx, binary, workDir, snapshot, to, revisionBump)
}

// restoreEtcdAt is restoreEtcd with a number that is added to the revision.
func restoreEtcdAt(ctx context.Context, binary, workDir, snapshot, to, bump string) error {
	err := runTool(ctx, binary, workDir, "etcdutl", "snapshot", "restore", snapshot, "--data-dir="+to,
		"--name="+memberName, "--initial-cluster="+initialCluster, "--initial-advertise-peer-urls=unix://"+peerSocket,
		"--bump-revision="+bump, "--mark-compacted")
	if err != nil {
		return fmt.Errorf("restore etcd's data: %w", err)
	}
	return closeFiles(to)
}

// foreignKeys are the prefixes of keys in etcd of objects that belong to the nodes and the credentials of the other cluster.
var foreignKeys = []string{
	"/registry/minions/", "/registry/csinodes/", "/registry/leases/kube-node-lease/", "/registry/leases/kube-system/apiserver-",
	"/registry/certificatesigningrequests/",
}

// removeForeignNodes deletes what belongs to the nodes of the other cluster from the etcd of a fork, before kube-apiserver starts:
// controllers would take the nodes for ones that do not respond.
func (cp *ControlPlane) removeForeignNodes(ctx context.Context) error {
	if !cp.forkIs(forkData) {
		return nil
	}
	// A transaction without conditions, so that one command is enough: no compares, deletions, nothing otherwise.
	var transaction strings.Builder
	transaction.WriteString("\n")
	for _, prefix := range foreignKeys {
		fmt.Fprintf(&transaction, "del --prefix %s\n", prefix)
	}
	transaction.WriteString("\n\n")
	_, err := toolOutput(ctx, cp.opts.Binary, cp.dir.sockets(), []byte(transaction.String()), "etcdctl", "--endpoints=unix://"+etcdSocket, "txn")
	if err != nil {
		return fmt.Errorf("remove the nodes of the other cluster: %w", err)
	}
	return cp.recordFork(forkTokens)
}

// removeForeignTokens deletes the tokens in Secrets of a fork, which its API rejects. kube-controller-manager fills in new ones.
func (cp *ControlPlane) removeForeignTokens(ctx context.Context, client kubernetes.Interface) error {
	if !cp.forkIs(forkTokens) {
		return nil
	}
	secrets, err := client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return err
	}
	patch := []byte(`{"data":{"token":null}}`)
	for _, secret := range secrets.Items {
		_, err := client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return cp.recordFork("")
}

func (cp *ControlPlane) forkIs(progress string) bool {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.state.Fork == progress
}

// recordFork records the progress of a fork.
func (cp *ControlPlane) recordFork(progress string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.state.Fork = progress
	return saveState(cp.dir, cp.state)
}

// toolOutput runs keelson-kube with an input, and returns its output.
func toolOutput(ctx context.Context, binary, workDir string, input []byte, args ...string) ([]byte, error) {
	var output bytes.Buffer
	err := runToolWith(ctx, binary, workDir, bytes.NewReader(input), &output, args...)
	return output.Bytes(), err
}
