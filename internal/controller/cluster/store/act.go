package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/objectstore"
)

// format is the version of the content of a copy. A manager refuses those of later versions.
const format = 1

// maxRecord limits the size of the record, which is in memory.
const maxRecord = 1 << 20

// record is the content of recordObject.
type record struct {
	Format int `json:"format"`
	// Name and UID are those of the ClusterSnapshot.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Size and SHA256 are those of dataObject.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Snapshot is the record of the engine. It has the Cluster, its version, and what a new cluster needs besides the data.
	Snapshot json.RawMessage `json:"snapshot"`
}

// act carries out the plan.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.ClusterSnapshot, p plan) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	switch p.action {
	case claim:
		return kube.AddFinalizer(ctx, r.Client, s, v1alpha1.StoreFinalizer)
	case upload, download:
		if err := r.checkLive(ctx, s); err != nil {
			return err
		}
		began, transfer, done := r.Clock.Now(), r.upload, "Copied the snapshot to the store"
		if p.action == download {
			transfer, done = r.download, "Read the snapshot from the store"
		}
		size, err := transfer(ctx, s)
		if err == nil {
			log.FromContext(ctx).Info(done, "location", p.location, "bytes", size, "took", r.Clock.Since(began).String())
		}
		return err
	case remove:
		return r.remove(ctx, s, p)
	}
	return nil
}

// checkLive compares the cached ClusterSnapshot with the API server before something is written. A copy of one that is gone
// would be left over.
func (r *Reconciler) checkLive(ctx context.Context, s *v1alpha1.ClusterSnapshot) error {
	var now v1alpha1.ClusterSnapshot
	return kube.CheckLive(ctx, r.Live, kind.Kind, s, &now, func() bool { return !now.DeletionTimestamp.IsZero() })
}

// upload copies a snapshot to the store, and returns its size. A manager that was killed may have done so already.
func (r *Reconciler) upload(ctx context.Context, s *v1alpha1.ClusterSnapshot) (int64, error) {
	name := nameOf(s)
	if found, err := r.readRecord(ctx, name); err == nil && found.UID == s.UID {
		return found.Size, nil
	} else if err != nil && !errors.Is(err, objectstore.ErrNotFound) && !errors.Is(err, errDamaged) {
		return 0, err
	}
	own, data, err := r.files.OpenSnapshot(s.UID)
	if err != nil {
		return 0, err
	}
	if data == nil {
		return 0, kube.Named(kube.ErrStale, "read", kind.Kind, "", s.Name) // it was deleted just now
	}
	defer func() { _ = data.Close() }() // it was only read
	info, err := data.Stat()
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	if err := r.store.Put(ctx, name+"/"+dataObject, io.TeeReader(data, sum), info.Size()); err != nil {
		return 0, err
	}
	step("data")
	content, err := json.MarshalIndent(record{
		Format: format, Name: s.Name, UID: s.UID, Size: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil)), Snapshot: own,
	}, "", "  ")
	if err != nil {
		return 0, err
	}
	err = r.store.Put(ctx, name+"/"+recordObject, bytes.NewReader(content), int64(len(content)))
	step("record")
	return info.Size(), err
}

// errDamaged means that the content of a copy is not what was written.
var errDamaged = errors.New("the copy in the store is damaged")

// readRecord reads the record of a copy.
func (r *Reconciler) readRecord(ctx context.Context, name string) (*record, error) {
	object, err := r.store.Get(ctx, name+"/"+recordObject)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(object, maxRecord))
	if err := errors.Join(err, object.Close()); err != nil {
		return nil, err
	}
	var found record
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDamaged, recordObject, err)
	}
	if found.Format > format {
		return nil, fmt.Errorf("a later version of Keelson wrote the copy (format %d): upgrade this one", found.Format)
	}
	return &found, nil
}

// download reads a snapshot from the store, and returns its size.
func (r *Reconciler) download(ctx context.Context, s *v1alpha1.ClusterSnapshot) (int64, error) {
	name := nameOf(s)
	found, err := r.readRecord(ctx, name)
	if err != nil {
		return 0, err
	}
	object, err := r.store.Get(ctx, name+"/"+dataObject)
	if err != nil {
		return 0, err
	}
	defer func() { _ = object.Close() }() // it was only read
	err = r.files.AddSnapshot(s.UID, found.Snapshot, func(to io.Writer) error {
		sum := sha256.New()
		// A byte more than it should have shows that it is longer.
		size, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(object, found.Size+1))
		switch {
		case err != nil:
			return err
		case size != found.Size:
			return fmt.Errorf("%w: %s has another size than the %d bytes that were written", errDamaged, dataObject, found.Size)
		case hex.EncodeToString(sum.Sum(nil)) != found.SHA256:
			return fmt.Errorf("%w: %s has another SHA-256 than what was written", errDamaged, dataObject)
		}
		step("received")
		return nil
	})
	return found.Size, err
}

// remove deletes the copy, and what a download may have left on this host after the controller of ClusterSnapshots has deleted the
// files there.
func (r *Reconciler) remove(ctx context.Context, s *v1alpha1.ClusterSnapshot, p plan) error {
	if err := r.files.RemoveSnapshot(s.UID); err != nil {
		return fmt.Errorf("remove the files of the snapshot: %w", err)
	}
	if !p.leave {
		for _, object := range []string{recordObject, dataObject} {
			if err := r.store.Delete(ctx, nameOf(s)+"/"+object); err != nil {
				return err
			}
			step("deleted " + object)
		}
		log.FromContext(ctx).Info("Deleted the copy of the snapshot", "location", p.location)
	}
	if err := kube.RemoveFinalizer(ctx, r.Client, s, v1alpha1.StoreFinalizer); err != nil {
		return err
	}
	if left := s.Status.Location; left != "" && s.Spec.Stored == "" && (p.leave || left != p.location) {
		r.Events.Normal(s, v1alpha1.ReasonCopyLeft, "Delete", fmt.Sprintf("The ClusterSnapshot is deleted. Its copy is left in %s", left))
	}
	return nil
}

// step is called after each step of copying and deleting a copy. Tests stop there.
var step = func(string) {}
