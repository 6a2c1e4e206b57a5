package store

import (
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/names"
)

// action is what a reconcile does.
type action string

const (
	// ignore: there is nothing to do or to say.
	ignore action = "ignore"
	// keep: the store has the copy.
	keep action = "keep"
	// wait: the snapshot is not taken yet.
	wait action = "wait"
	// claim: the finalizer is added before there is a copy.
	claim action = "claim"
	// upload: the snapshot is copied to the store.
	upload action = "upload"
	// download: the snapshot is read from the store.
	download action = "download"
	// unreadable: the files on this host have an error.
	unreadable action = "unreadable"
	// noStore: the snapshot has to be read from a store, and there is none.
	noStore action = "noStore"
	// remove: the copy and the finalizer are removed.
	remove action = "remove"
)

// plan is the result of decide.
type plan struct {
	now    time.Time
	action action
	// location is that of the copy in the store.
	location string
	// leave means that the copy is not deleted with its ClusterSnapshot.
	leave bool
}

// decide returns the next action for the copy of a snapshot. It is a pure function of the observed state.
func decide(s *v1alpha1.ClusterSnapshot, seen observation, now time.Time) plan {
	claimed := slices.Contains(s.Finalizers, v1alpha1.StoreFinalizer)
	isImport := s.Spec.Stored != ""
	isStored := s.Status.Location == seen.location && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStored)
	isNeeded := isImport || s.Status.TakenAt != nil && s.Status.Location != ""
	p := plan{now: now, location: seen.location, action: ignore}
	switch {
	case !s.DeletionTimestamp.IsZero():
		if claimed {
			p.action = remove
			p.leave = isImport || !seen.hasStore || s.Annotations[v1alpha1.AnnotationKeepCopy] == "true"
		}
	case !seen.hasStore:
		if isNeeded && !seen.present {
			p.action = noStore
		}
	case seen.err != nil:
		p.action = unreadable
	case !seen.present && !isImport && s.Status.TakenAt == nil:
		p.action = wait
	case seen.present && (isStored || isImport):
		p.action = keep
	case !claimed:
		p.action = claim
	case seen.present:
		p.action = upload
	default:
		p.action = download
	}
	return p
}

// The objects of a copy. The one with the record is written last and deleted first: without it, there is no copy.
const (
	dataObject   = "etcd.db"
	recordObject = "snapshot.json"
)

// nameOf returns the name of the directory of a copy in the store. It has the UID, because several managers may share a store.
func nameOf(s *v1alpha1.ClusterSnapshot) string {
	if s.Spec.Stored != "" {
		return path.Join(s.Spec.ClusterName, s.Spec.Stored)
	}
	const limit = 200 // file names have at most 255 bytes
	return path.Join(s.Spec.ClusterName, names.Shorten(s.Name, limit)+"-"+string(s.UID))
}
