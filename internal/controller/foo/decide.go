package foo

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// action is what is to be done about the Deployment that a Foo asks for.
type action string

const (
	// keep: it is as it should be.
	keep action = "keep"
	// create: there is none.
	create action = "create"
	// repair: it is ours and differs.
	repair action = "repair"
	// replace: it is ours and differs in what cannot be changed. It is deleted; the
	// event of that leads to a new one.
	replace action = "replace"
	// waitForDeletion: it is ours and is being deleted.
	waitForDeletion action = "waitForDeletion"
	// waitForCollection: it belongs to an earlier Foo of this name and is about to be
	// deleted by the garbage collector.
	waitForCollection action = "waitForCollection"
	// blocked: the Deployment of that name belongs to someone else.
	blocked action = "blocked"
)

// plan is what to do.
type plan struct {
	// at is when it was made.
	at time.Time
	// action is about the Deployment that the Foo asks for, and current is that
	// Deployment if it is ours.
	action  action
	current *appsv1.Deployment
	// differs says in which way current differs.
	differs []string
	// renamed are Deployments of an earlier spec.deploymentName, to be deleted after
	// the Deployment of the present name was written.
	renamed []*appsv1.Deployment
}

// acts reports whether the plan is to write or delete the Deployment that the Foo asks
// for.
func (p plan) acts() bool { return p.action == create || p.action == repair || p.action == replace }

// decide returns what is to be done for foo, given what there is.
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
	switch p.action {
	case keep, create, repair:
		// Only now: as long as the new name cannot be had, the old Deployment serves.
		p.renamed = seen.renamed(foo)
	}
	return p
}

// renamed returns the owned Deployments that have another name than foo asks for.
func (o observation) renamed(foo *v1alpha1.Foo) []*appsv1.Deployment {
	var found []*appsv1.Deployment
	for i := range o.owned {
		if d := &o.owned[i]; d.Name != foo.Spec.DeploymentName && d.DeletionTimestamp.IsZero() {
			found = append(found, d)
		}
	}
	return found
}
