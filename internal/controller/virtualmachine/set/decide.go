package set

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// action is what a change does to a machine that exists.
type action string

const (
	// update: the machine gets the template in place.
	update action = "update"
	// restart: the machine has the template, a part of which requires a restart.
	restart action = "restart"
	// replace: the machine is deleted, because it cannot change a field. Its deletion triggers the creation of the next one.
	replace action = "replace"
)

// change is an action on a machine.
type change struct {
	action  action
	number  int32
	machine *v1alpha1.VirtualMachine
	// fields are those that require the replacement.
	fields []string
}

// plan is the result of decide.
type plan struct {
	// at is the time of the decision.
	at time.Time
	// hash is that of the template.
	hash string
	// create are the numbers of machines that do not exist.
	create []int32
	// remove are machines that are not needed any more.
	remove []*v1alpha1.VirtualMachine
	// due are the changes that machines need to have the template, by number.
	due map[int32]change
	// changes are those that are made now.
	changes []change
	// waiting are machines that do not have the template, and that are not changed now.
	waiting int
	// taken are numbers of machines whose name has another owner.
	taken []int32
}

// acts reports whether the plan writes or deletes a machine.
func (p plan) acts() bool { return len(p.create)+len(p.remove)+len(p.changes) > 0 }

// action describes the plan in the log.
func (p plan) action() string {
	switch {
	case len(p.create) > 0:
		return "create"
	case len(p.remove) > 0:
		return "remove"
	case len(p.changes) > 0:
		return string(p.changes[0].action)
	case len(p.taken) > 0:
		return "blocked"
	case p.waiting > 0:
		return "wait"
	}
	return "keep"
}

// candidate is a machine that does not have the template, or needs a restart for it.
type candidate struct {
	change
	available bool
}

// decide returns the plan for set. It is a pure function of the observed state.
func decide(set *v1alpha1.VirtualMachineSet, seen observation, now time.Time) plan {
	p := plan{at: now, hash: templateHash(set), due: map[int32]change{}}
	for number, machine := range seen.owned {
		if next, due := p.changeOf(set, number, machine); due {
			p.due[number] = next
		}
	}
	for _, number := range slices.Sorted(maps.Keys(seen.owned)) {
		if machine := seen.owned[number]; number >= replicas(set) && machine.DeletionTimestamp.IsZero() {
			p.remove = append(p.remove, machine)
		}
	}
	var candidates []candidate
	unavailable, inProgress := int32(0), int32(0)
	for number := range replicas(set) {
		machine, other := seen.owned[number], seen.others[number]
		available := machine != nil && isReady(machine)
		if !available {
			unavailable++
		}
		next, due := p.due[number]
		switch {
		case due:
			candidates = append(candidates, candidate{change: next, available: available})
			continue
		case !available:
			inProgress++
		}
		switch {
		case machine != nil:
		case other == nil:
			p.create = append(p.create, number)
		case !kube.IsLeftover(other, set, kind.GroupKind()):
			p.taken = append(p.taken, number)
		}
	}
	p.chooseChanges(candidates, maxUnavailable(set), unavailable, inProgress)
	return p
}

// changeOf returns the change that a machine needs to have the template, if it needs one.
func (p plan) changeOf(set *v1alpha1.VirtualMachineSet, number int32, machine *v1alpha1.VirtualMachine) (change, bool) {
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return change{}, false
	case machine.Labels[v1alpha1.LabelTemplateHash] != p.hash:
		wanted := machine.DeepCopy()
		applyTemplate(set, wanted, p.hash)
		if fields := immutable(&machine.Spec, &wanted.Spec); len(fields) > 0 {
			return change{action: replace, number: number, machine: machine, fields: fields}, true
		}
		return change{action: update, number: number, machine: machine}, true
	case needsRestart(machine, p.hash):
		return change{action: restart, number: number, machine: machine}, true
	}
	return change{}, false
}

// chooseChanges chooses the changes that are due now. A machine that is changed counts as unavailable until it is available again:
// the one before must work before the next one is changed. Machines that are not available come first, because nobody misses
// them: so a template that does not work can be fixed.
func (p *plan) chooseChanges(candidates []candidate, maxUnavailable, unavailable, inProgress int32) {
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			compareBool(b.available, a.available),
			compareBool(a.action == restart, b.action == restart),
			cmp.Compare(b.number, a.number))
	})
	slots := maxUnavailable - inProgress
	for _, c := range candidates {
		if slots <= 0 || c.available && unavailable >= maxUnavailable {
			p.waiting++
			continue
		}
		if c.available {
			unavailable++
		}
		slots--
		p.changes = append(p.changes, c.change)
	}
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// isReady reports whether a machine is as its present spec requests: also one that is stopped or asleep, and one whose change waits until
// it is awake.
func isReady(machine *v1alpha1.VirtualMachine) bool {
	return isCurrent(machine) && meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionReady) && !isChangeRefused(machine)
}

// isChangeRefused reports whether the present spec of a machine cannot be applied.
func isChangeRefused(machine *v1alpha1.VirtualMachine) bool {
	return meta.IsStatusConditionFalse(machine.Status.Conditions, v1alpha1.ConditionSynchronized)
}

// isCurrent reports whether the status of a machine describes its present spec.
func isCurrent(machine *v1alpha1.VirtualMachine) bool {
	return machine.DeletionTimestamp.IsZero() && machine.Status.ObservedGeneration == machine.Generation && machine.Status.PendingRestart == nil
}

// needsRestart reports whether the template of that hash requires a restart of a machine.
func needsRestart(machine *v1alpha1.VirtualMachine, hash string) bool {
	return isCurrent(machine) && machine.Annotations[v1alpha1.AnnotationStartedTemplateHash] != hash &&
		meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionRestartRequired)
}
