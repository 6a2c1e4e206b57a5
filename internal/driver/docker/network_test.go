package docker

import (
	"slices"
	"strings"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

const (
	neighbour    types.UID = "0b5b4d8e-0000-4000-8000-0000000000ac"
	otherMachine types.UID = "0b5b4d8e-0000-4000-8000-0000000000ad"
)

// runOther runs a second machine and returns its address.
func (w *fixture) runOther(uid types.UID, namespace string) string {
	w.Helper()
	machine := small(uid)
	machine.Namespace = namespace
	state := func() backend.Server {
		server, _ := w.driver.Observe(w.Context(), machine.Identity)
		return server
	}
	w.do(w.driver.Create(w.Context(), machine))
	harness.Eventually(w, "the other machine is created", func() bool { s := state(); return is(backend.StateStopped)(&s) })
	w.do(w.driver.Start(w.Context(), machine))
	harness.Eventually(w, "the other machine runs", func() bool { s := state(); return is(backend.StateRunning)(&s) && len(s.Addresses) == 1 })
	return state().Addresses[0]
}

func (w *fixture) removeOther(uid types.UID, namespace string) {
	w.Helper()
	id := small(uid).Identity
	id.Namespace = namespace
	harness.Eventually(w, "the other machine is deleted", func() bool { return w.driver.Delete(w.Context(), id, backend.DeleteOptions{}) == nil })
}

func TestNamespacesHaveSeparateNetworks(t *testing.T) {
	w := newFixture(t)
	w.run(small(uid))
	near, far := w.runOther(neighbour, "default"), w.runOther(otherMachine, "other")
	// Nothing listens at the port: a refusal comes from the machine itself, and a dropped packet
	// gets no response.
	try := func(address string) string {
		return w.exec("wget -O /dev/null http://" + address + ":8080/ >/tmp/out 2>&1 & sleep 5; cat /tmp/out")
	}
	if got := try(near); !strings.Contains(got, "refused") {
		t.Errorf("a machine does not reach one in its namespace: %q", got)
	}
	if got := try(far); strings.Contains(got, "refused") {
		t.Errorf("a machine reaches one in another namespace: %q", got)
	}
	networks := w.networks(t.Context())
	slices.Sort(networks)
	if want := []string{"keelson-cluster-default", "keelson-cluster-other"}; !slices.Equal(networks, want) {
		t.Errorf("networks are %v, want %v", networks, want)
	}
	w.removeOther(otherMachine, "other")
	w.removeOther(neighbour, "default")
	if got := w.networks(t.Context()); !slices.Equal(got, []string{"keelson-cluster-default"}) {
		t.Errorf("networks with one machine left are %v", got)
	}
	w.remove(backend.DeleteOptions{})
}

// A machine that is off has no endpoint, so the engine allows its network to be removed.
func TestNetworkRemovedByHand(t *testing.T) {
	w := newFixture(t)
	w.create(small(uid))
	_, err := w.api.NetworkRemove(t.Context(), "keelson-cluster-default", client.NetworkRemoveOptions{})
	w.do(err)
	w.start(small(uid))
	w.remove(backend.DeleteOptions{})
}

// A manager that is killed during a create can leave a second network with the same name.
func TestLongDuplicateNetwork(t *testing.T) {
	w := newFixture(t)
	w.run(small(uid))
	options := client.NetworkCreateOptions{Driver: "bridge", Labels: networkLabels(small(uid).Identity)}
	_, err := w.api.NetworkCreate(t.Context(), "keelson-cluster-default", options)
	if cerrdefs.IsConflict(err) {
		t.Skip("this engine rejects duplicate names")
	}
	w.do(err)
	w.runOther(neighbour, "default")
	if got := w.networks(t.Context()); len(got) != 1 {
		t.Errorf("networks are %v", got)
	}
	w.removeOther(neighbour, "default")
	w.remove(backend.DeleteOptions{})
}

func TestNetworkOfAnotherOwner(t *testing.T) {
	w := newFixture(t)
	made, err := w.api.NetworkCreate(t.Context(), "keelson-cluster-default", client.NetworkCreateOptions{Driver: "bridge"})
	w.do(err)
	w.do(w.driver.Create(t.Context(), small(uid)))
	failed := w.eventually("it has failed", func(s *backend.Server) bool { return s != nil && s.Ended != nil && s.Task == backend.TaskNone })
	if !strings.Contains(failed.Ended.Message, "was not created by Keelson") {
		t.Errorf("failed with %+v", failed.Ended)
	}
	w.remove(backend.DeleteOptions{})
	if _, err := w.api.NetworkRemove(t.Context(), made.ID, client.NetworkRemoveOptions{}); err != nil {
		t.Errorf("the network of another owner was removed: %v", err)
	}
}

func TestLongNoAddressesLeft(t *testing.T) {
	w := newFixture(t)
	full := false
	for i := 0; i < 100 && !full; i++ {
		made, err := w.api.NetworkCreate(t.Context(), "filler-"+string(rune('a'+i/26))+string(rune('a'+i%26)), client.NetworkCreateOptions{Driver: "bridge"})
		if full = err != nil; full {
			break
		}
		defer func() { _, err := w.api.NetworkRemove(t.Context(), made.ID, client.NetworkRemoveOptions{}); w.do(err) }()
	}
	w.do(w.driver.Create(t.Context(), small(uid)))
	failed := w.eventually("it has failed", func(s *backend.Server) bool { return s != nil && s.Ended != nil && s.Task == backend.TaskNone })
	if failed.Ended.Cause != backend.CauseCreateFailed || !strings.Contains(failed.Ended.Message, "default-address-pools") {
		t.Errorf("failed with %+v", failed.Ended)
	}
	w.remove(backend.DeleteOptions{})
}
