package set

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// of returns what is seen of a set whose machines are as the changes say, from number 0; nil means that there is none.
func of(set *v1alpha1.VirtualMachineSet, machines ...func(*v1alpha1.VirtualMachine)) observation {
	seen := observation{owned: map[int32]*v1alpha1.VirtualMachine{}, others: map[int32]*v1alpha1.VirtualMachine{}}
	for number, change := range machines {
		if change == nil {
			continue
		}
		machine := newMachine(set, int32(number), templateHash(set))
		machine.UID, machine.Generation = types.UID(machine.Name), 1
		change(machine)
		if metav1.IsControlledBy(machine, set) {
			seen.owned[int32(number)] = machine
		} else {
			seen.others[int32(number)] = machine
		}
	}
	return seen
}

// all returns a change that makes several.
func all(changes ...func(*v1alpha1.VirtualMachine)) func(*v1alpha1.VirtualMachine) {
	return func(machine *v1alpha1.VirtualMachine) {
		for _, change := range changes {
			change(machine)
		}
	}
}

func outdated(machine *v1alpha1.VirtualMachine) {
	machine.Labels[v1alpha1.LabelTemplateHash] = "old"
	machine.Annotations[v1alpha1.AnnotationStartedTemplateHash] = "old"
}

// applied is a machine that got the template in place, and was not restarted for it.
func applied(machine *v1alpha1.VirtualMachine) {
	machine.Annotations[v1alpha1.AnnotationStartedTemplateHash] = "old"
}
func otherImage(machine *v1alpha1.VirtualMachine) {
	machine.Spec.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/old"}}
}
func deleted(machine *v1alpha1.VirtualMachine) {
	machine.DeletionTimestamp = &metav1.Time{Time: noon}
}

// refused is a machine that runs on, because its present spec cannot be applied.
func refused(machine *v1alpha1.VirtualMachine) {
	ready(machine)
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionSynchronized, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: "Too little memory",
	})
}
func foreign(machine *v1alpha1.VirtualMachine)  { machine.OwnerReferences = nil }
func leftover(machine *v1alpha1.VirtualMachine) { machine.OwnerReferences[0].UID = "set-0" }
func unobserved(machine *v1alpha1.VirtualMachine) {
	ready(machine)
	machine.Generation++
}

// describe returns what a plan does, such as "create 0 2; update 1".
func describe(p plan) string {
	var parts []string
	add := func(verb string, numbers ...any) {
		if len(numbers) > 0 {
			parts = append(parts, verb+" "+strings.TrimSpace(fmt.Sprintln(numbers...)))
		}
	}
	for _, number := range p.create {
		add("create", number)
	}
	for _, machine := range p.remove {
		add("remove", strings.TrimPrefix(machine.Name, "web-"))
	}
	for _, c := range p.changes {
		add(string(c.action), strings.TrimPrefix(c.machine.Name, "web-"))
	}
	for _, number := range p.taken {
		add("taken", number)
	}
	if p.waiting > 0 {
		add("waiting", p.waiting)
	}
	return strings.Join(parts, "; ")
}

type machines = []func(*v1alpha1.VirtualMachine)

func TestDecideAndSummarize(t *testing.T) {
	old := all(outdated, ready)
	three := newSet()
	two := newSet(func(s *v1alpha1.VirtualMachineSet) {
		s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("67%"))
	})
	quota := apierrors.NewForbidden(v1alpha1.Resource("virtualmachines"), "web-0", errors.New("exceeded quota: few"))
	for _, test := range []struct {
		reason   string
		set      *v1alpha1.VirtualMachineSet
		machines machines
		actErr   error
		plan     string
		ready    string
		numbers  string // replicas, ready, updated
		says     string
	}{
		{"a new set creates all machines at once", three, nil, nil, "create 0; create 1; create 2", "MachinesNotReady", "0 0 0", `"web-0" is not ready: it is being created`},
		{"a machine is missing", three, machines{ready, nil, ready}, nil, "create 1", "MachinesNotReady", "2 2 2", `"web-1"`},
		{"all are ready", three, machines{ready, ready, ready}, nil, "", "MachinesReady", "3 3 3", "3 of 3 machines are ready"},
		{"none is wanted", newSet(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = ptr.To[int32](0) }), nil, nil, "", "MachinesReady", "0 0 0", "0 of 0"},
		{"a guest boots", three, machines{ready, notReady(v1alpha1.ReasonGuestBooting), ready}, nil, "", "MachinesNotReady", "3 2 3", `"web-1" is not ready: It is GuestBooting`},
		{"a machine has not observed its spec: what it reports is about the one before", three, machines{unobserved, ready, ready}, nil, "", "MachinesNotReady", "3 2 3", "it is being changed"},
		{
			"the set was scaled down", newSet(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = nil }), machines{ready, ready, ready},
			nil, "remove 1; remove 2", "MachinesNotReady", "3 3 3", "scaled down",
		},
		{
			"machines that are not wanted are being deleted", newSet(func(s *v1alpha1.VirtualMachineSet) { s.Spec.Replicas = nil }),
			machines{ready, all(ready, deleted)}, nil, "", "MachinesReady", "1 1 1", "1 of 1",
		},
		{"a user deletes a machine: it is created when it is gone", three, machines{ready, all(ready, deleted), ready}, nil, "", "MachinesNotReady", "2 2 2", "it is being deleted"},
		{"a name has another owner; the others are created", three, machines{nil, foreign, nil}, nil, "create 0; create 2; taken 1", "ErrResourceExists", "0 0 0", `"web-1" exists`},
		{"a machine of an earlier set of the name is about to go", three, machines{ready, leftover, ready}, nil, "", "MachinesNotReady", "2 2 2", `"web-1"`},
		{"the name turned out to have another owner", three, nil, &takenError{"web-1"}, "create 0; create 1; create 2", "ErrResourceExists", "0 0 0", `"web-1" exists`},
		{"a quota rejects a machine", three, nil, quota, "create 0; create 1; create 2", "TemplateRejected", "0 0 0", "exceeded quota"},
		{"the API server has a problem", three, nil, errors.New("no"), "create 0; create 1; create 2", "MachineWriteFailed", "0 0 0", "retried: no"},

		{"the template changes: the highest number is first", three, machines{old, old, old}, nil, "update 2; waiting 2", "RollingOut", "3 3 0", "3 of 3 machines do not have"},
		{"the next one waits for the one before", three, machines{old, old, notReady(v1alpha1.ReasonGuestBooting)}, nil, "waiting 2", "RollingOut", "3 2 1", `"web-2" is not ready: It is GuestBooting`},
		{"even if that has not been looked at yet", three, machines{old, old, unobserved}, nil, "waiting 2", "RollingOut", "3 2 1", `"web-2"`},
		{"and is next when that is ready", three, machines{old, old, ready}, nil, "update 1; waiting 1", "RollingOut", "3 3 1", "2 of 3"},
		{"two at once", two, machines{old, old, old}, nil, "update 2; update 1; waiting 1", "RollingOut", "3 3 0", ""},
		{"two at once, one of which is not ready yet", two, machines{old, old, unobserved}, nil, "update 1; waiting 1", "RollingOut", "3 2 1", ""},
		{"a field that cannot be changed", three, machines{all(old, otherImage), all(old, otherImage), all(old, otherImage)}, nil, "replace 2; waiting 2", "RollingOut", "3 3 0", ""},
		{"the replaced machine is on its way out", three, machines{old, old, all(old, deleted)}, nil, "waiting 2", "RollingOut", "2 2 0", "it is being deleted"},
		{"and is created again first", three, machines{old, old, nil}, nil, "create 2; waiting 2", "RollingOut", "2 2 0", "it is being created"},
		{"a machine fails with the new template: the roll-out stops", three, machines{old, old, failed}, nil, "waiting 2", "RolloutStopped", "3 2 1", `"web-2" has it and has failed: It is CreateFailed`},
		{"and the fixed template goes there first", three, machines{old, old, all(outdated, failed)}, nil, "update 2; waiting 2", "RollingOut", "3 2 0", ""},
		{"a machine that is not ready is first, and no other is taken down", three, machines{all(outdated, failed), old, old}, nil, "update 0; waiting 2", "RollingOut", "3 2 0", ""},
		{"all have failed: still one after the other", three, machines{all(outdated, failed), all(outdated, failed), all(outdated, failed)}, nil, "update 2; waiting 2", "RollingOut", "3 0 0", ""},
		{"a machine refuses the new template: the roll-out stops", three, machines{old, old, refused}, nil, "waiting 2", "RolloutStopped", "3 2 1", `"web-2" has it and has failed: Too little memory`},
		{"a machine whose guest has crashed holds up the others", three, machines{old, old, notReady(v1alpha1.ReasonGuestStopped)}, nil, "waiting 2", "RollingOut", "3 2 1", ""},
		{"a name with another owner holds up a roll-out", three, machines{old, old, foreign}, nil, "taken 2; waiting 2", "ErrResourceExists", "2 2 0", ""},

		{"the template requires a restart", three, machines{ready, ready, all(applied, restartRequired)}, nil, "restart 2", "RollingOut", "3 3 2", "1 of 3"},
		{"a restart comes before the next change", three, machines{old, all(applied, restartRequired), old}, nil, "restart 1; waiting 2", "RollingOut", "3 3 0", ""},
		{"and waits for a machine that is not ready", three, machines{ready, all(applied, restartRequired), notReady(v1alpha1.ReasonStopping)}, nil, "waiting 1", "RollingOut", "3 2 2", ""},
		{"one restart has to do", three, machines{ready, ready, restartRequired}, nil, "", "MachinesReady", "3 3 3", ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			seen := of(test.set, test.machines...)
			p := decide(test.set, seen, noon)
			if diff := cmp.Diff(test.plan, describe(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			status := summarize(test.set, seen, p, test.actErr)
			is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if is.Reason != test.ready || !strings.Contains(is.Message, test.says) {
				t.Errorf("Ready is %s: %s", is.Reason, is.Message)
			}
			if got := fmt.Sprint(status.Replicas, status.ReadyReplicas, status.UpdatedReplicas); got != test.numbers {
				t.Errorf("machines %s, want %s", got, test.numbers)
			}
			if status.Selector != "cloudnative.tw/virtualmachineset=web" || status.ObservedGeneration != 2 {
				t.Errorf("the status is %+v", status)
			}
		})
	}
}

func TestSplitName(t *testing.T) {
	for _, test := range []struct {
		machine, set string
		number       int32
		found        bool
	}{
		{"web-0", "web", 0, true},
		{"a-b-12", "a-b", 12, true},
		{"web", "", 0, false},
		{"web-", "", 0, false},
		{"web-01", "", 0, false},
		{"web-+1", "", 0, false},
		{"-1", "", 0, false},
		{"web-99999999999", "", 0, false},
	} {
		if set, number, found := splitName(test.machine); set != test.set || number != test.number || found != test.found {
			t.Errorf("%s is %s, %d, %t", test.machine, set, number, found)
		}
	}
}

func TestMaxUnavailable(t *testing.T) {
	for _, test := range []struct {
		reason   string
		given    *intstr.IntOrString
		replicas int32
		want     int32
	}{
		{"the default", nil, 3, 1},
		{"a number", ptr.To(intstr.FromInt32(2)), 3, 2},
		{"a number above that of the machines", ptr.To(intstr.FromInt32(9)), 3, 9},
		{"a percentage is rounded down", ptr.To(intstr.FromString("25%")), 7, 1},
		{"a percentage", ptr.To(intstr.FromString("25%")), 8, 2},
		{"at least one, or no update would end", ptr.To(intstr.FromString("1%")), 3, 1},
		{"all", ptr.To(intstr.FromString("100%")), 3, 3},
		{"of no machines", ptr.To(intstr.FromString("50%")), 0, 1},
	} {
		t.Run(test.reason, func(t *testing.T) {
			set := newSet(func(s *v1alpha1.VirtualMachineSet) {
				s.Spec.Replicas, s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &test.replicas, test.given
			})
			if got := maxUnavailable(set); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
