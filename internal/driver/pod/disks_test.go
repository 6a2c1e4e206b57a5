package pod

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// awaitClaims waits until a machine has the claims of these disks and no other.
func (c *cluster) awaitClaims(machine backend.Machine, want ...string) {
	c.Helper()
	slices.Sort(want)
	harness.Eventually(c, "it has the claims of "+strings.Join(want, ", "), func() bool {
		claims, err := c.driver.claims(c.Context(), machine.Identity)
		if err != nil {
			c.Fatal(err)
		}
		var got []string
		for disk := range claims {
			got = append(got, disk)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// start starts a machine, and waits until it runs.
func (c *cluster) start(machine backend.Machine) {
	c.Helper()
	harness.Eventually(c, "it runs", func() bool {
		c.must("Start", c.driver.Start(c.Context(), machine))
		server, err := c.driver.Observe(c.Context(), machine.Identity)
		return err == nil && isRunning(server)
	})
}

// stop stops a machine.
func (c *cluster) stop(machine backend.Machine) {
	c.Helper()
	c.must("Stop", c.driver.Stop(c.Context(), machine.Identity, 0))
	c.until(machine, "it is off", func(s backend.Server) bool { return s.State == backend.StateStopped && s.Task == backend.TaskNone })
}

func TestRemovedDisks(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.Disks = []backend.Disk{{Name: "scratch", SizeBytes: 8 << 20}, {Name: "kept", SizeBytes: 8 << 20}}
	c.must("Create", c.driver.Create(t.Context(), machine))
	c.start(machine)
	c.awaitClaims(machine, rootDisk, "scratch", "kept")
	machine.Disks, machine.Hash = []backend.Disk{{Name: "scratch", SizeBytes: 8 << 20}, {Name: "kept", SizeBytes: 8 << 20, Retain: true}}, "2"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	machine.Disks, machine.Hash = []backend.Disk{{Name: "late", SizeBytes: 8 << 20}}, "3"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.awaitClaims(machine, rootDisk, "scratch", "kept", "late")
	if server := c.until(machine, "the change is seen", func(s backend.Server) bool { return s.Hash == "3" }); !slices.Equal(server.Pending, []string{"disks"}) || len(server.Disks) != 3 {
		t.Errorf("pending are %q and %+v", server.Pending, server.Disks)
	}
	c.stop(machine)
	c.start(machine)
	c.awaitClaims(machine, rootDisk, "kept", "late")
	c.stop(machine)
	harness.Eventually(t, "it is deleted", func() bool {
		return c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{KeepDisks: []string{"late"}}) == nil
	})
	c.awaitClaims(machine, "kept", "late")
}

// A machine never starts with an empty disk instead of the one that it had. It starts with a restored claim, which may have no annotations.
func TestLostClaim(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 8 << 20}}
	c.must("Create", c.driver.Create(t.Context(), machine))
	claims := c.api.CoreV1().PersistentVolumeClaims(machine.Namespace)
	if err := claims.Delete(t.Context(), claimName(machine.UID, "data"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitClaims(machine, rootDisk)
	if err := c.driver.Start(t.Context(), machine); err == nil || !strings.Contains(err.Error(), "with the data disk is gone") {
		t.Errorf("Start: %v", err)
	}
	c.awaitClaims(machine, rootDisk)
	restored := newClaim(&machine, machine.Disks[0])
	restored.Annotations = nil
	if _, err := claims.Create(t.Context(), restored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.start(machine)
	c.remove(machine)
}
