package set

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestScale(t *testing.T) {
	w := newWorld(t)
	w.create(func(s *v1alpha1.VirtualMachineSet) {
		s.Spec.Template.Metadata.Labels = map[string]string{"app": "web"}
		s.Spec.VirtualDiskTemplates = []v1alpha1.VirtualDiskTemplate{{Name: "data", Spec: v1alpha1.VirtualDiskSpec{Size: ptr.To(resource.MustParse("1Gi"))}}}
	})
	w.rollOut()
	w.expect(v1alpha1.ReasonMachinesReady, "3 3 3", "3 of 3")
	if diff := cmp.Diff("web-0 web-1 web-2", w.names()); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	machine := w.machine("web-1")
	if !metav1.IsControlledBy(machine, w.Object()) || machine.Labels["app"] != "web" {
		t.Errorf("the machine has %+v", machine.ObjectMeta)
	}
	if diff := cmp.Diff([]v1alpha1.Disk{{Name: "data", VirtualDisk: "data-web-1", DeletePolicy: v1alpha1.DiskDelete}}, machine.Spec.Disks); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	uid := machine.UID

	// Down, by the scale subresource, and up: the disk is the same, the machine is not.
	scale := func(n int32) {
		w.Do(w.Client.SubResource("scale").Patch(t.Context(), w.Object(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))))
	}
	scale(1)
	w.rollOut()
	if diff := cmp.Diff("web-0", w.names()); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	var disks v1alpha1.VirtualDiskList
	w.Do(w.Client.List(t.Context(), &disks, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelSet: "web"}))
	if len(disks.Items) != 3 || len(disks.Items[0].OwnerReferences) > 0 {
		t.Errorf("there are %d disks", len(disks.Items))
	}
	scale(2)
	w.rollOut()
	if machine := w.machine("web-1"); machine.UID == uid {
		t.Error("the machine was not deleted")
	}
	w.expect(v1alpha1.ReasonMachinesReady, "2 2 2", "2 of 2")
}

// A machine does not start with a disk that is being deleted: it would lose it, and the set would be ready without it.
func TestADiskThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	held := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-web-0", Finalizers: []string{"example.com/held"}}}
	held.Spec.Size = ptr.To(resource.MustParse("1Gi"))
	w.Do(w.Client.Create(t.Context(), held))
	w.Do(w.Client.Delete(t.Context(), held))
	w.create(func(s *v1alpha1.VirtualMachineSet) {
		s.Spec.Replicas = ptr.To[int32](1)
		spec := v1alpha1.VirtualDiskSpec{Size: ptr.To(resource.MustParse("1Gi"))}
		s.Spec.VirtualDiskTemplates = []v1alpha1.VirtualDiskTemplate{{Name: "data", Spec: spec}, {Name: "logs", Spec: spec}}
	})
	for range 3 {
		if _, err := w.Reconcile(t.Context(), w.Object()); err == nil {
			t.Error("it is not retried")
		}
		w.Clock.SetTime(w.Clock.Now().Add(2 * time.Second)) // the status is written later
	}
	w.expect(v1alpha1.ReasonMachineWriteFailed, "0 0 0", "VirtualDisk data-web-0 of an earlier machine is being deleted")
	if names := w.names(); names != "" {
		t.Errorf("machines: %s", names)
	}
	other := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "logs-web-0"}}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("the other disk waits for it: %v", err)
	}
	w.Do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	held.Finalizers = nil
	w.Do(w.Client.Update(t.Context(), held))
	w.rollOut()
	w.expect(v1alpha1.ReasonMachinesReady, "1 1 1", "1 of 1")
}

// A change that a VirtualMachine takes in place is patched, any other leads to a replacement: there is none that the API refuses.
func TestEveryChangeOfTheTemplateIsPossible(t *testing.T) {
	size := func(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }
	disk := func(change func(*v1alpha1.Disk)) []v1alpha1.Disk {
		disk := v1alpha1.Disk{Name: "data", Size: size("1Gi"), DeletePolicy: v1alpha1.DiskDelete}
		change(&disk)
		return []v1alpha1.Disk{disk}
	}
	for _, test := range []struct {
		name     string
		change   func(*v1alpha1.VirtualMachineSpec)
		replaced bool
	}{
		{"processors", func(s *v1alpha1.VirtualMachineSpec) { s.Resource.CPU = resource.MustParse("2") }, false},
		{"a port is removed", func(s *v1alpha1.VirtualMachineSpec) { s.Ports = nil }, false},
		{"a larger root disk", func(s *v1alpha1.VirtualMachineSpec) { s.Resource.RootDisk = size("2Gi") }, false},
		{"a smaller root disk", func(s *v1alpha1.VirtualMachineSpec) { s.Resource.RootDisk = size("512Mi") }, true},
		{"no size of the root disk", func(s *v1alpha1.VirtualMachineSpec) { s.Resource.RootDisk = nil }, true},
		{"another image", func(s *v1alpha1.VirtualMachineSpec) {
			s.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/b"}, Agent: ptr.To(true)}
		}, true},
		{"a snapshot", func(s *v1alpha1.VirtualMachineSpec) { s.Image = &v1alpha1.Image{Snapshot: "gold"} }, true},
		{"no image", func(s *v1alpha1.VirtualMachineSpec) { s.Image = nil }, true},
		{"a driver", func(s *v1alpha1.VirtualMachineSpec) { s.Driver = "fake" }, true},
		{"a StorageClass", func(s *v1alpha1.VirtualMachineSpec) { s.Pod = &v1alpha1.VirtualMachinePod{StorageClassName: "fast"} }, true},
		{"no claims", func(s *v1alpha1.VirtualMachineSpec) {
			s.Pod = &v1alpha1.VirtualMachinePod{Storage: v1alpha1.StorageEphemeral}
		}, true},
		{"a disk more", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = append(s.Disks, v1alpha1.Disk{Name: "more", Size: size("1Gi")})
		}, false},
		{"no disk", func(s *v1alpha1.VirtualMachineSpec) { s.Disks = nil }, false},
		{"a larger disk", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = disk(func(d *v1alpha1.Disk) { d.Size = size("2Gi") })
		}, false},
		{"a smaller disk", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = disk(func(d *v1alpha1.Disk) { d.Size = size("1Mi") })
		}, true},
		{"a disk of an image", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = disk(func(d *v1alpha1.Disk) { d.Image = &v1alpha1.DiskImage{ImageSource: v1alpha1.ImageSource{Path: "/a"}} })
		}, true},
		{"a VirtualDisk in its place", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = disk(func(d *v1alpha1.Disk) { d.Size, d.VirtualDisk = nil, "shared" })
		}, true},
		{"a disk that is kept", func(s *v1alpha1.VirtualMachineSpec) {
			s.Disks = disk(func(d *v1alpha1.Disk) { d.DeletePolicy = v1alpha1.DiskRetain })
		}, false},
		{"another power state", func(s *v1alpha1.VirtualMachineSpec) { s.Action = v1alpha1.ActionStopped }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(func(s *v1alpha1.VirtualMachineSet) {
				s.Spec.Replicas = nil
				spec := &s.Spec.Template.Spec
				spec.Image, spec.Resource.RootDisk = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/a"}}, size("1Gi")
				spec.Ports, spec.Disks = []v1alpha1.Port{{Name: "ssh", Port: 22}}, disk(func(*v1alpha1.Disk) {})
			})
			w.rollOut()
			uid := w.machine("web-0").UID
			w.Change(func(s *v1alpha1.VirtualMachineSet) { test.change(&s.Spec.Template.Spec) })
			w.rollOut()
			machine := w.machine("web-0")
			if replaced := machine.UID != uid; replaced != test.replaced {
				t.Errorf("replaced: %t", replaced)
			}
			if diff := cmp.Diff(w.Object().Spec.Template.Spec, machine.Spec); diff != "" {
				t.Errorf("the machine differs from the template (-template +machine):\n%s", diff)
			}
		})
	}
}

func TestARolloutRestartsOneMachineAfterTheOther(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.rollOut()
	w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Template.Spec.Firmware = v1alpha1.FirmwareUEFI })
	for _, name := range []string{"web-2", "web-1", "web-0"} {
		w.Settle()
		w.report(name, restartRequired)
		w.Settle()
		machine := w.machine(name)
		if machine.Spec.RestartRequestedAt == nil || isReady(machine) {
			t.Fatalf("%s was not restarted", name)
		}
		w.report(name, ready)
	}
	w.Settle()
	w.expect(v1alpha1.ReasonMachinesReady, "3 3 3", "")
	if got := w.eventsOf(v1alpha1.ReasonMachineRestarted); len(got) != 3 {
		t.Errorf("events are %q", got)
	}
	// The next template keeps what the machines were asked for.
	before := w.machine("web-0").Spec.RestartRequestedAt
	w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Template.Metadata.Labels = map[string]string{"a": "b"} })
	w.rollOut()
	if got := w.machine("web-0").Spec.RestartRequestedAt; !got.Equal(before) {
		t.Errorf("restartRequestedAt was %v, and is %v", before, got)
	}
}

func TestABrokenTemplateStopsAtTheFirstMachine(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.rollOut()
	w.Change(func(s *v1alpha1.VirtualMachineSet) {
		s.Spec.Template.Spec.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/broken"}}
	})
	w.Settle()
	w.report("web-2", failed)
	w.Settle()
	w.expect(v1alpha1.ReasonRolloutStopped, "3 2 1", `"web-2" has it and has failed`)
	if got := w.eventsOf(v1alpha1.ReasonRolloutStopped); len(got) != 1 || !strings.HasPrefix(got[0], "Warning") {
		t.Errorf("events are %q", got)
	}
	w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Template.Spec.Image = nil })
	w.rollOut()
	w.expect(v1alpha1.ReasonMachinesReady, "3 3 3", "")
}

func TestAForeignMachineIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	stranger := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-1"}}
	w.Do(w.Client.Create(t.Context(), stranger))
	before := w.machine("web-1")
	w.create()
	for range 3 {
		w.Settle()
		w.Restart()
	}
	w.expect(v1alpha1.ReasonErrResourceExists, "2 0 2", `"web-1"`)
	if diff := cmp.Diff(before, w.machine("web-1")); diff != "" {
		t.Errorf("it was touched (-before +after):\n%s", diff)
	}
	if got := w.eventsOf(v1alpha1.ReasonErrResourceExists); len(got) != 1 || !strings.HasPrefix(got[0], "Warning") {
		t.Errorf("events are %q", got)
	}
	w.Do(w.Client.Delete(t.Context(), stranger))
	w.rollOut()
	w.expect(v1alpha1.ReasonMachinesReady, "3 3 3", "")
}

func TestAStaleCache(t *testing.T) {
	freeze := func(w *world) {
		w.Freeze()
	}
	t.Run("no machine is doubled", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		freeze(w)
		for range 3 {
			w.ReconcileOnce()
		}
		if diff := cmp.Diff("web-0 web-1 web-2", w.names()); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
	})
	t.Run("a machine of another owner that the cache lacks", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		freeze(w)
		stranger := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-1"}}
		w.Do(w.Client.Create(t.Context(), stranger))
		w.ReconcileOnce()
		w.Restart()
		w.Settle()
		w.expect(v1alpha1.ReasonErrResourceExists, "2 0 2", `"web-1" exists`)
		if diff := cmp.Diff(stranger.ResourceVersion, w.machine("web-1").ResourceVersion); diff != "" {
			t.Errorf("it was touched (-before +after):\n%s", diff)
		}
	})
	t.Run("an outdated set deletes nothing", func(t *testing.T) {
		w := newWorld(t)
		w.create(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](1) })
		w.rollOut()
		old := w.Object()
		w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](3) })
		w.rollOut()
		if result, err := w.Reconcile(t.Context(), old); err != nil || result.RequeueAfter != kube.StalePause {
			t.Errorf("Reconcile returns %v, %v", result, err)
		}
		if diff := cmp.Diff("web-0 web-1 web-2", w.names()); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
	})
	t.Run("a machine that has changed is not overwritten", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.rollOut()
		w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Template.Metadata.Labels = map[string]string{"a": "b"} })
		freeze(w)
		w.report("web-2", notReady(v1alpha1.ReasonGuestSilent))
		w.ReconcileOnce()
		if got := w.machine("web-2").Labels["a"]; got != "" {
			t.Error("the machine was changed")
		}
	})
	t.Run("a machine with the name of a deleted one is not deleted", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.rollOut()
		w.Change(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](2) })
		freeze(w)
		w.Do(w.Client.Delete(t.Context(), w.machine("web-2")))
		w.Do(w.Client.Create(t.Context(), &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-2"}}))
		w.ReconcileOnce()
		if diff := cmp.Diff("web-0 web-1 web-2", w.names()); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
	})
}

func TestASetThatIsBeingDeletedDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Do(w.Client.Delete(t.Context(), w.Object(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.Settle()
	if got := w.names(); got != "" {
		t.Errorf("machines are %s", got)
	}
}

func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.rollOut()
	before, writes := w.Object(), len(w.Writes)
	for range 5 {
		w.Clock.SetTime(w.Clock.Now().Add(time.Hour))
		if result := w.ReconcileOnce(); result.RequeueAfter != 0 {
			t.Errorf("again in %v", result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(before, w.Object()); diff != "" || len(w.Writes) != writes {
		t.Errorf("nothing happened, and there are %d writes; the set changed (-before +after):\n%s", len(w.Writes)-writes, diff)
	}
}

// TestStories tells what happens to a set that is ready. In the end, its machines are those of the template.
func TestStories(t *testing.T) {
	table := stories.Table[*world]{New: startWorld, Steps: 8, Finish: (*world).rollOut}
	for _, story := range []struct {
		name   string
		change func(*v1alpha1.VirtualMachineSet)
		names  string
	}{
		{"scaled up", func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](4) }, "web-0 web-1 web-2 web-3"},
		{"scaled down", func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](1) }, "web-0"},
		{"changed in place", func(s *v1alpha1.VirtualMachineSet) { s.Spec.Template.Spec.Action = v1alpha1.ActionPaused }, "web-0 web-1 web-2"},
		{"another image", func(s *v1alpha1.VirtualMachineSet) {
			s.Spec.Template.Spec.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/b"}}
		}, "web-0 web-1 web-2"},
	} {
		table.Stories = append(table.Stories, stories.Story[*world]{
			Name: story.name,
			Before: func(w *world) {
				w.create()
				w.rollOut()
			},
			Happen: func(w *world) { w.Change(story.change) },
			End: func(w *world) {
				if diff := cmp.Diff(story.names, w.names()); diff != "" {
					w.Fatalf("machines (-want +got):\n%s", diff)
				}
				for _, machine := range w.machines() {
					if diff := cmp.Diff(w.Object().Spec.Template.Spec, machine.Spec); diff != "" {
						w.Errorf("%s differs from the template:\n%s", machine.Name, diff)
					}
				}
			},
		})
	}
	table.Run(t)
}
