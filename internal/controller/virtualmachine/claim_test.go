package virtualmachine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
)

// otherFinalizer is the finalizer of a second driver.
const otherFinalizer = "other" + finalizerSuffix

func driver(name string) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.Driver = name }
}

func TestDriverOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		vm     *v1alpha1.VirtualMachine
		want   string
		advice string // empty: no conflict
	}{
		{"no driver named", newVM(onHost(""), finalizers()), "usual", ""},
		{"spec.driver", newVM(onHost(""), finalizers("example.com/mine"), driver("other")), "other", ""},
		{"a finalizer", newVM(onHost("")), "fake", ""},
		{"a finalizer of an unknown driver", newVM(onHost(""), finalizers("bhyve.cloudnative.tw/server")), "bhyve", ""},
		{"claimed, and the finalizer was edited", newVM(finalizers(otherFinalizer)), "fake",
			"replace the finalizer other.cloudnative.tw/server with fake.cloudnative.tw/server"},
		{"a server without a recorded host", newVM(hadServer, onHost("")), "fake", ""},
		{"a server whose finalizer was removed", newVM(hadServer, finalizers()), "fake", ""},
		{"a server whose finalizer was edited", newVM(hadServer, finalizers(otherFinalizer)), "fake",
			"replace the finalizer other.cloudnative.tw/server with fake.cloudnative.tw/server"},
		{"a server with two finalizers", newVM(hadServer, finalizers(otherFinalizer, fakeFinalizer)), "fake",
			"remove the finalizer other.cloudnative.tw/server"},
		{"a server whose finalizer was edited before the deletion", newVM(hadServer, deleted, finalizers(otherFinalizer)), "fake",
			"remove the finalizer other.cloudnative.tw/server; the machine is then deleted by its driver, which may keep the disk"},
		{"no server yet, and a finalizer of another driver than that of the spec", newVM(onHost(""), driver("fake"), finalizers(otherFinalizer)), "fake",
			"replace the finalizer other.cloudnative.tw/server with fake.cloudnative.tw/server"},
		{"no server yet, and two finalizers", newVM(onHost(""), finalizers(fakeFinalizer, otherFinalizer)), "fake",
			"remove the finalizers of the drivers that do not have the machine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := driverOf(test.vm, "usual")
			if got != test.want || errors.Is(err, errConflict) != (test.advice != "") {
				t.Errorf("it is %q, %v; want %q", got, err, test.want)
			}
			if err != nil && !strings.HasSuffix(err.Error(), ": "+test.advice) {
				t.Errorf("it says %q, want %q", err, test.advice)
			}
		})
	}
}

// addDriver adds a second driver to the manager, and returns it.
func (w *fixture) addDriver() *fake.Driver {
	other := fake.New(fake.Options{Clock: w.Clock, BootTime: -1})
	w.Reconciler.drivers = NewDrivers([]string{fake.Name, "other"}, map[string]Opener{
		fake.Name: func() (Driver, error) { return w.backend, nil },
		"other":   func() (Driver, error) { return other, nil },
	}, w.Clock)
	return other
}

func TestEditedFinalizerMakesNoSecondServer(t *testing.T) {
	w := newFixture(t)
	other := w.addDriver()
	w.createReady()
	w.Change(finalizers(otherFinalizer))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseUnknown, isUnknown, v1alpha1.ReasonDriverConflict)
	if got := w.events(); !slices.Equal(got, []string{"Warning DriverConflict"}) {
		t.Errorf("events: %v", got)
	}
	w.Change(finalizers(fakeFinalizer))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)

	w.Change(finalizers(otherFinalizer))
	w.Delete()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseTerminating, isFalse, v1alpha1.ReasonDriverConflict)
	w.expectCalls()
	uid := w.uid()
	w.Change(finalizers()) // as the condition advises
	if servers := w.backend.UIDs(); !w.IsGone() || !slices.Equal(servers, []types.UID{uid}) {
		t.Fatalf("gone: %t, servers: %v", w.IsGone(), servers)
	}
	w.collectOrphans(t.Context())
	if servers := w.backend.UIDs(); len(servers) > 0 {
		t.Errorf("the servers %v are left", servers)
	}
	if calls := other.Calls(); len(calls) > 0 {
		t.Errorf("calls of the wrong driver: %v", calls)
	}
}

func TestRemovedFinalizerComesBack(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.Change(finalizers("example.com/mine"))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls()
	if got := w.Object().Finalizers; !slices.Equal(got, []string{"example.com/mine", fakeFinalizer}) {
		t.Errorf("finalizers: %v", got)
	}
}

// The server is deleted with the object, although no finalizer delays the deletion.
func TestFinalizerRemovedDuringTheDeletion(t *testing.T) {
	w := newFixture(t)
	w.createReady(func(vm *v1alpha1.VirtualMachine) { vm.Spec.DiskPolicy = v1alpha1.DiskRetain })
	w.Change(finalizers("example.com/mine", fakeFinalizer))
	w.Delete()
	w.Change(finalizers("example.com/mine"))
	w.reconcileUntilStable()
	if servers, kept := w.backend.UIDs(), w.backend.Kept(); len(servers) > 0 || len(kept) != 1 {
		t.Errorf("servers: %v, disks that were kept: %v", servers, kept)
	}
	w.expectCalls("Delete")
	w.Change(finalizers())
	if !w.IsGone() {
		t.Error("it is not gone")
	}
}
