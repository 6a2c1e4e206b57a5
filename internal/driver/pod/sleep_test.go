package pod

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func isAsleep(s backend.Server) bool {
	return s.State == backend.StateAsleep && s.Task == backend.TaskNone
}

// sleep puts a machine to sleep.
func (c *cluster) sleep(machine backend.Machine) backend.Server {
	c.Helper()
	c.must("Sleep", c.driver.Sleep(c.Context(), machine.Identity, backend.SleepOptions{}))
	return c.until(machine, "it is asleep", isAsleep)
}

// A machine wakes as it was started, whatever was changed since. Then its disk grows, and it gets the other changes when it restarts.
func TestMachineWakesAsItWasStarted(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	before := c.definition(machine)
	changed := machine
	changed.MemoryBytes, changed.DiskBytes, changed.Hash = 256<<20, 128<<20, "2"
	changed.Disks = []backend.Disk{{Name: "data", SizeBytes: 8 << 20}}
	changed.Seed = &backend.Seed{UserData: "#cloud-config\n"}
	c.sleep(machine)
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), changed))
	c.must("Start", c.driver.Start(t.Context(), changed))
	server := c.until(machine, "it is awake", isRunning)
	before.Asleep = true
	if now := c.definition(machine); now.MemoryBytes != before.MemoryBytes || now.DiskBytes != before.DiskBytes || len(now.Disks) > 0 || !now.Asleep {
		t.Errorf("it wakes as %+v, was %+v", now, before)
	}
	if want := []string{"resource.memory", fieldDisks, "cloudInit"}; !slices.Equal(server.Pending, want) {
		t.Errorf("pending are %q, want %q", server.Pending, want)
	}
	// Memory from before the end of a run is void after it.
	epoch := c.definition(machine).Epoch
	c.sleep(machine)
	c.stop(machine)
	c.start(changed)
	if now := c.definition(machine); now.Asleep || now.Epoch == epoch || now.MemoryBytes != changed.MemoryBytes {
		t.Errorf("after a stop, it is started as %+v", now)
	}
	c.remove(machine)
}

// A machine whose Pod is deleted while it is asleep stays so.
func TestAsleepWithoutPod(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	asleep := c.sleep(machine)
	if err := c.api.CoreV1().Pods(machine.Namespace).Delete(t.Context(), objectName(machine.UID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(machine, "its Pod is gone", func(s backend.Server) bool {
		pod, err := readPod(t.Context(), c.driver.cache, machine.Identity)
		return err == nil && pod == nil && isAsleep(s)
	})
	c.until(machine, "its size is recorded", func(s backend.Server) bool { return s.SavedBytes == asleep.SavedBytes })
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it is awake", isRunning)
	if !c.definition(machine).Asleep {
		t.Error("it may wake without its memory")
	}
	c.remove(machine)
}

// conflicting is a client whose second update meets a conflict.
type conflicting struct {
	client.Client
	updates atomic.Int64
}

// Update implements client.Client.
func (c *conflicting) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if c.updates.Add(1) == 2 {
		return apierrors.NewConflict(corev1.Resource("secrets"), object.GetName(), errors.New("it has changed"))
	}
	return c.Client.Update(ctx, object, options...)
}

// A machine that cannot fall asleep runs on, and the next call says why. That it does is recorded even if its record changes meanwhile.
func TestSleepFails(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	c.launchers.change(func(s *simulated) { s.awake = "the volume has no room" })
	c.driver.client = &conflicting{Client: c.driver.client}
	c.must("Sleep", c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
	var err error
	harness.Eventually(t, "the attempt has failed", func() bool {
		err = c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{})
		return !errors.Is(err, backend.ErrInProgress)
	})
	if err == nil || !strings.Contains(err.Error(), "the volume has no room") {
		t.Errorf("Sleep: %v", err)
	}
	c.until(machine, "it runs", isRunning)
	_, rec, err := c.driver.find(t.Context(), machine.Identity)
	if err != nil || rec.Asleep != nil {
		t.Errorf("it is recorded as %+v, %v", rec.Asleep, err)
	}
	c.remove(machine)
}

// A machine without a root disk has no volume for its memory.
func TestMachineWithoutDiskDoesNotSleep(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.DiskBytes = 0
	c.must("Create", c.driver.Create(t.Context(), machine))
	c.start(machine)
	if err := c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("Sleep: %v", err)
	}
	c.remove(machine)
}

func TestClaimsHaveRoomForTheMemory(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.DiskBytes, machine.MemoryBytes = 1<<30, 512<<20
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 1 << 30}}
	c.must("Create", c.driver.Create(t.Context(), machine))
	check := func(disk string, want int64) {
		t.Helper()
		claims, err := c.driver.claims(t.Context(), machine.Identity)
		if err != nil {
			t.Fatal(err)
		}
		size := claimSize(want)
		if got := claims[disk].Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(size) != 0 {
			t.Errorf("the claim of the disk %s has %s, want %s", disk, got.String(), size.String())
		}
	}
	check(rootDisk, 1<<30+512<<20)
	check("data", 1<<30)
	harness.Eventually(t, "the claims are bound, so that they can grow", func() bool {
		claims, err := c.driver.claims(t.Context(), machine.Identity)
		return err == nil && claims[rootDisk].Status.Phase == corev1.ClaimBound && claims["data"].Status.Phase == corev1.ClaimBound
	})
	machine.DiskBytes = 2 << 30
	c.start(machine)
	check(rootDisk, 2<<30+512<<20)
	c.remove(machine)
}
