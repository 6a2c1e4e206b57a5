package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// restoredName is a file in etcd's data that RestoreInPlace has put in place: the token of the restore. It is part of the data, so that
// both take effect at once.
const restoredName = "restored"

// restoreName begins the names of folders in which RestoreInPlace restores a snapshot. Each attempt has its own, because etcdutl
// of a program that was killed may still write to the one before.
const restoreName = "restore-"

// InPlace describes a restore in place.
type InPlace struct {
	// Binary is the path of keelson-kube, and File the snapshot.
	Binary, File string
	// Revision is the revision of the snapshot.
	Revision int64
	// Token identifies the restore. It is done once.
	Token string
	// Stop stops the components and ends their supervision. It is called after everything else that may fail or takes long.
	Stop func(context.Context) error
}

// RestoreInPlace replaces the data of etcd by that of a snapshot of the same control plane, which keeps its certificates and keys. It
// leaves the components stopped. If the restore was done before, it does nothing. A RestoreInPlace that was killed may be repeated, and
// before Stop it has changed nothing.
func RestoreInPlace(ctx context.Context, path string, r InPlace) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := layout(abs)
	if err := RemoveRestores(abs); err != nil || Restored(abs) == r.Token {
		return err
	}
	place, err := os.MkdirTemp(abs, restoreName)
	if err != nil {
		return err
	}
	if err := r.prepare(ctx, abs, place); err != nil {
		return errors.Join(err, os.RemoveAll(place))
	}
	if err := r.Stop(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(place))
	}
	if err := exchangeData(dir, place); err != nil {
		return fmt.Errorf("replace the data of etcd in %s: %w", abs, errors.Join(err, os.RemoveAll(place)))
	}
	return RemoveRestores(abs) // the data before
}

// prepare restores the snapshot into a folder.
func (r InPlace) prepare(ctx context.Context, dir, place string) error {
	if err := restoreEtcd(ctx, r.Binary, dir, r.File, place, laterRevision(r.Revision, time.Now())); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(place, "member", restoredName), []byte(r.Token), atomicfile.Durable)
}

// laterRevision returns what to add to the revision of a snapshot, so that the result is later than all revisions before: clients keep
// those, and must notice that the objects have changed. It is the time in microseconds, because etcd has fewer writes than that.
func laterRevision(of int64, now time.Time) string {
	return strconv.FormatInt(max(now.UnixMicro()-of, 1), 10)
}

// exchangeData exchanges the data of etcd and another folder in one step, while no component runs and no other program may start one.
func exchangeData(dir layout, place string) error {
	procs, err := process.Open(dir.processes())
	if err != nil {
		return err
	}
	s, err := loadState(dir)
	if err == nil {
		s.RealNodes = node.MaxNodes // the snapshot may have Nodes that were removed since; the next start deletes them
		err = saveState(dir, s)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, dir.etcdData(), unix.RENAME_EXCHANGE)
	}
	if err == nil {
		err = atomicfile.SyncDir(string(dir))
	}
	return errors.Join(err, procs.Close())
}

// Restored returns the token of the last RestoreInPlace of a data directory; empty if there was none.
func Restored(path string) string {
	token, err := os.ReadFile(filepath.Join(layout(path).etcdData(), "member", restoredName))
	if err != nil {
		return ""
	}
	return string(token)
}

// RemoveRestores removes what a RestoreInPlace that was killed has left in a data directory.
func RemoveRestores(path string) error {
	places, err := filepath.Glob(layout(path).path(restoreName + "*"))
	for _, place := range places {
		if rest := os.RemoveAll(place); rest != nil && !errors.Is(rest, fs.ErrNotExist) {
			err = errors.Join(err, rest)
		}
	}
	return err
}
