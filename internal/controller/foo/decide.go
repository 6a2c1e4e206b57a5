package foo

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// action is the action on the Deployment of a Foo.
type action string

const (
	// keep: the Deployment is as specified.
	keep action = "keep"
	// create: the Deployment does not exist.
	create action = "create"
	// repair: the Deployment is controlled by the Foo and differs.
	repair action = "repair"
	// replace: the Deployment differs in an immutable field. It is deleted, and the
	// delete event triggers the creation of a new one.
	replace action = "replace"
	// waitForDeletion: the Deployment is being deleted.
	waitForDeletion action = "waitForDeletion"
	// waitForCollection: the Deployment belongs to an earlier Foo with this name, and the
	// garbage collector will delete it.
	waitForCollection action = "waitForCollection"
	// blocked: a Deployment with that name exists and has another owner.
	blocked action = "blocked"
)

// plan is the result of decide.
type plan struct {
	// at is the time of the decision.
	at time.Time
	// action is the action on the Deployment; current is that Deployment if the Foo
	// controls it.
	action  action
	current *appsv1.Deployment
	// differs lists the differences of current.
	differs []string
	// renamed are Deployments of an earlier spec.deploymentName. They are deleted when the
	// Deployment with the current name is available.
	renamed []*appsv1.Deployment
	// again is when to look again without an event; zero means never.
	again time.Duration
}

const (
	// podPatience is the time that Pods have to become available before somebody looks what holds them up.
	podPatience = 10 * time.Second
	// podCheckInterval is the interval of that look.
	podCheckInterval = 30 * time.Second
)

// acts reports whether the plan writes or deletes the Deployment of the current name.
func (p plan) acts() bool { return p.action == create || p.action == repair || p.action == replace }

// decide returns the plan for foo. It is a pure function of the observed state.
func decide(foo *v1alpha1.Foo, seen observation, now time.Time) plan {
	p := plan{at: now, current: seen.find(foo.Spec.DeploymentName)}
	switch {
	case p.current == nil && seen.other == nil:
		p.action = create
	case p.current == nil && kube.IsLeftover(seen.other, foo, kind.GroupKind()):
		p.action = waitForCollection
	case p.current == nil:
		p.action = blocked
	case !p.current.DeletionTimestamp.IsZero():
		p.action = waitForDeletion
	case !hasSelector(foo, p.current):
		p.action = replace
	default:
		p.action = keep
		if p.differs = differences(foo, p.current); len(p.differs) > 0 {
			p.action = repair
		}
	}
	if p.action == keep && isAvailable(foo, p.current) {
		// Not earlier: the old Deployment serves until the new one is available.
		p.renamed = seen.renamed(foo)
	}
	if p.action == keep {
		_, p.again = podCheck(foo, p.current, now)
	}
	return p
}

// podCheck reports whether it is time to look at the Pods of a Deployment that does not become available, and when to do so next; zero if
// there is nothing to look for.
func podCheck(foo *v1alpha1.Foo, current *appsv1.Deployment, now time.Time) (due bool, again time.Duration) {
	if isAvailable(foo, current) || stuckCause(current) != "" {
		return false, 0
	}
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return false, podPatience
	}
	if left := podPatience - now.Sub(ready.LastTransitionTime.Time); left > 0 {
		return false, left
	}
	return true, podCheckInterval
}

// renamed returns the owned Deployments with another name than spec.deploymentName.
func (o observation) renamed(foo *v1alpha1.Foo) []*appsv1.Deployment {
	var found []*appsv1.Deployment
	for i := range o.owned {
		if d := &o.owned[i]; d.Name != foo.Spec.DeploymentName && d.DeletionTimestamp.IsZero() {
			found = append(found, d)
		}
	}
	return found
}
