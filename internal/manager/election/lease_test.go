package election

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// The lock says who has it whatever a replica left behind that was killed between the writes to its two Leases.
func TestTwoLeases(t *testing.T) {
	const nobody = ""
	tests := []struct {
		name         string
		former, own  *string // holders; nil: there is no such Lease
		want         string  // the holder that the lock names
		isNotFound   bool    // it says that there is none
		wantsFormer  bool    // the former Lease exists after an update
		deleteFormer bool    // somebody deletes it after the look
	}{
		{name: "neither", isNotFound: true},
		{name: "no former one", own: ptr.To("x"), want: "x"},
		{name: "an earlier version leads", former: ptr.To("old"), want: "old", wantsFormer: true},
		{name: "an earlier version has released it", former: ptr.To(nobody), want: nobody, wantsFormer: true},
		{name: "an earlier version leads again", former: ptr.To("old"), own: ptr.To(nobody), want: "old", wantsFormer: true},
		{name: "another replica leads", former: ptr.To("x"), own: ptr.To("x"), want: "x", wantsFormer: true},
		{name: "both are free", former: ptr.To(nobody), own: ptr.To(nobody), want: nobody, wantsFormer: true},
		{name: "killed between the first two writes", former: ptr.To("x"), want: "x", wantsFormer: true},
		{name: "killed between two releases", former: ptr.To(nobody), own: ptr.To("x"), want: "x", wantsFormer: true},
		{name: "killed while it took over", former: ptr.To("y"), own: ptr.To("x"), want: "y", wantsFormer: true},
		{name: "this replica has only the former one", former: ptr.To("me"), own: ptr.To("x"), want: "x", wantsFormer: true},
		{name: "the former one is deleted", former: ptr.To(nobody), own: ptr.To(nobody), want: nobody, deleteFormer: true},
		{name: "the former one, which was alone, is deleted", former: ptr.To(nobody), want: nobody, deleteFormer: true},
	}
	c, err := client.New(env.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := coordinationv1client.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	election := Options{LockName: "lock", Identity: "me"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			former, own := env.Namespace(t), env.Namespace(t)
			for namespace, holder := range map[string]*string{former: tt.former, own: tt.own} {
				if holder == nil {
					continue
				}
				lease := &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: holder, LeaseDurationSeconds: ptr.To[int32](15)},
				}
				if err := c.Create(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			lock := &twoLeases{Interface: newLeaseLock(leases, election, own), former: newLeaseLock(leases, election, former)}
			record, raw, err := lock.Get(t.Context())
			if apierrors.IsNotFound(err) != tt.isNotFound || !tt.isNotFound && err != nil {
				t.Fatalf("Get: %v", err)
			}
			if tt.isNotFound {
				err = lock.Create(t.Context(), recordOf("me", 15))
			} else {
				if record.HolderIdentity != tt.want {
					t.Errorf("the holder: got %q, want %q", record.HolderIdentity, tt.want)
				}
				if _, again, err := lock.Get(t.Context()); err != nil || string(again) != string(raw) {
					t.Errorf("a second look finds a change: %v, %s, %s", err, raw, again)
				}
				if tt.deleteFormer {
					lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: former, Name: "lock"}}
					if err := c.Delete(t.Context(), lease); err != nil {
						t.Fatal(err)
					}
				}
				err = lock.Update(t.Context(), recordOf("me", 15))
			}
			if apierrors.IsConflict(err) && tt.deleteFormer { // what the elector does then
				if _, _, err = lock.Get(t.Context()); apierrors.IsNotFound(err) {
					err = lock.Create(t.Context(), recordOf("me", 15))
				} else if err == nil {
					err = lock.Update(t.Context(), recordOf("me", 15))
				}
			}
			if err == nil { // the next renewal
				err = lock.Update(t.Context(), recordOf("me", 15))
			}
			if err != nil {
				t.Fatalf("take it: %v", err)
			}
			var lease coordinationv1.Lease
			err = c.Get(t.Context(), client.ObjectKey{Namespace: own, Name: "lock"}, &lease)
			if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); err != nil || holder != "me" {
				t.Errorf("the holder of its own Lease: %q, %v", holder, err)
			}
			lease = coordinationv1.Lease{}
			err = c.Get(t.Context(), client.ObjectKey{Namespace: former, Name: "lock"}, &lease)
			if tt.wantsFormer != (err == nil) {
				t.Errorf("the former Lease: %v, want that it exists: %t", err, tt.wantsFormer)
			}
			if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); err == nil && holder != "me" {
				t.Errorf("the holder of the former Lease: %q", holder)
			}
		})
	}
}

// A change of either Lease is a sign of life of its holder.
func TestTwoLeasesChange(t *testing.T) {
	leases, err := coordinationv1client.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	former, own := env.Namespace(t), env.Namespace(t)
	lockOf := func(identity string) *twoLeases {
		election := Options{LockName: "lock", Identity: identity}
		return &twoLeases{Interface: newLeaseLock(leases, election, own), former: newLeaseLock(leases, election, former)}
	}
	old, present, me := lockOf("old").former, lockOf("present").Interface, lockOf("me")
	if err := old.Create(t.Context(), recordOf("old", 1)); err != nil {
		t.Fatal(err)
	}
	if err := present.Create(t.Context(), recordOf("present", 1)); err != nil {
		t.Fatal(err)
	}
	_, before, err := me.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	record := recordOf("present", 1)
	record.LeaderTransitions = 1
	if err := present.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if found, after, err := me.Get(t.Context()); err != nil || found.HolderIdentity != "old" || string(after) == string(before) {
		t.Errorf("after a renewal of the other one: %v, %v, %s", found, err, after)
	}
}
