package etcdsnapshot

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
)

// Saver is an engine that takes snapshots.
type Saver interface {
	// SaveSnapshot writes a consistent snapshot of the etcd of a cluster to a new file, mode 0600, and verifies it. It returns
	// snapshot.ErrNotRunning if the cluster does not run.
	SaveSnapshot(ctx context.Context, of snapshot.Source, file string) (Saved, error)
}

// Saved describes a snapshot that an engine has taken.
type Saved struct {
	// Version is the Kubernetes version of the cluster.
	Version string
	// Revision is that of etcd.
	Revision int64
	// Services is the network of Services; empty means the usual one.
	Services string
}

// Require returns the record of a ClusterSnapshot. The error is a cluster.ErrSnapshot if there is none.
func (d Dir) Require(uid types.UID, name string) (*Record, error) {
	found, err := d.Read(uid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrSnapshot, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: this host has no files of the ClusterSnapshot %s", cluster.ErrSnapshot, name)
	}
	return found, nil
}

// ForNew returns the record of the snapshot of which a new cluster with a Kubernetes version is made. The error is a cluster.ErrSnapshot or
// ErrVersion.
func (d Dir) ForNew(r cluster.Request, version string) (*Record, error) {
	if r.Snapshot.Err != nil {
		return nil, r.Snapshot.Err
	}
	of, err := d.Require(r.Snapshot.UID, r.Spec.From.Snapshot)
	if err != nil {
		return nil, err
	}
	return of, of.checkVersion(r.Spec.From.Snapshot, version)
}

// checkVersion returns an ErrVersion if a cluster with a Kubernetes version cannot have the objects of the snapshot.
func (of *Record) checkVersion(name, version string) error {
	if err := cluster.CheckUpgrade(of.Version, version); err != nil {
		return fmt.Errorf("the ClusterSnapshot %s: %w", name, err)
	}
	return nil
}

// ForRestore returns the record of a snapshot, unless a cluster with a UID and a Kubernetes version cannot be restored from it. The error is
// a cluster.ErrSnapshot or ErrVersion.
func (d Dir) ForRestore(r *cluster.Restore, uid types.UID, version string) (*Record, error) {
	of, err := d.Require(r.UID, r.Name)
	if err != nil {
		return nil, err
	}
	if of.ClusterUID != uid {
		return nil, fmt.Errorf("%w: the ClusterSnapshot %s is of another Cluster: create a new Cluster of it with spec.from", cluster.ErrSnapshot, r.Name)
	}
	return of, of.checkVersion(r.Name, version)
}

// Store takes snapshots of the clusters of its engines into a Dir. It implements snapshot.Store and store.Files.
type Store struct {
	Dir
	// Engines are those with snapshots.
	Engines map[v1alpha1.Engine]Saver
	Clock   clock.PassiveClock
}

// FindSnapshot implements snapshot.Store.
func (s *Store) FindSnapshot(uid types.UID) (*snapshot.Snapshot, error) {
	found, err := s.Read(uid)
	if err != nil || found == nil {
		return nil, err
	}
	return &found.Snapshot, nil
}

// TakeSnapshot implements snapshot.Store.
func (s *Store) TakeSnapshot(ctx context.Context, uid types.UID, of snapshot.Source) (*snapshot.Snapshot, error) {
	engine, found := s.Engines[of.Spec.EngineOrDefault()]
	if !found {
		return nil, fmt.Errorf("the engine %s has no snapshots", of.Spec.EngineOrDefault())
	}
	taken, err := s.add(uid, func(file string) (Record, error) {
		record := Record{Snapshot: snapshot.Snapshot{Cluster: of.Name, ClusterUID: of.UID, TakenAt: s.Clock.Now().UTC()}}
		saved, err := engine.SaveSnapshot(ctx, of, file)
		record.Version, record.Revision, record.Services = saved.Version, saved.Revision, saved.Services
		return record, err
	})
	if err != nil {
		return nil, err
	}
	return &taken.Snapshot, nil
}
