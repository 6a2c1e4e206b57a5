// Package snapshots makes snapshots on a schedule, keeps the last ones, and decides about restores in place, for the controllers of
// the kinds that have spec.snapshots and spec.restore.
package snapshots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1" // its words; those of other kinds are the same
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/names"
)

// maxClockSkew is how far decidedUntil may be in the future. If it is later, the clock was wrong, and the schedule begins anew.
const maxClockSkew = time.Minute

// Snapshot is a snapshot that a schedule has made.
type Snapshot struct {
	client.Object
	// TakenAt is nil until it is taken.
	TakenAt *metav1.Time
	// Ready is its condition Ready; nil if it has none yet.
	Ready *metav1.Condition
}

// Of is what a schedule makes snapshots of.
type Of struct {
	client.Object
	// Kind is the kind of the snapshots.
	Kind string
	Spec commonv1.SnapshotSchedule
	// Status is the progress so far.
	Status commonv1.SnapshotScheduleStatus
	// Idle is why no snapshots are made now; nil if they are.
	Idle *metav1.Condition
}

// Plan is what is due.
type Plan struct {
	// Status is the progress after the plan was executed.
	Status commonv1.SnapshotScheduleStatus
	// Create is the scheduled time of the snapshot to make; zero for none.
	Create time.Time
	// Prune are snapshots that are not kept.
	Prune []Snapshot
	// Condition is the condition if the plan is executed without an error.
	Condition metav1.Condition
	// Again is when to decide again; zero means never.
	Again time.Time
	// made is true after the snapshot that is due was made. Act sets it, also if none is due.
	made bool
}

// Decide returns what is due, given the snapshots that the schedule has made.
func Decide(of Of, scheduled []Snapshot, now time.Time) *Plan {
	p := &Plan{Status: of.Status}
	scheduled = newestFirst(scheduled, now)
	p.Prune = selectSurplus(scheduled, int(ptr.Deref(of.Spec.Keep, commonv1.DefaultSnapshotsKept)))
	waits := whyNoneIsMade(of, scheduled)
	p.Condition = ptr.Deref(waits, conditionOf(of, scheduled))
	times, invalid := Times(of)
	switch {
	case invalid != nil:
		p.Condition = condition(metav1.ConditionFalse, v1alpha1.ReasonInvalidSchedule, "%s: %s", invalid.Field, invalid.Detail)
		p.Status.NextScheduleTime = nil
		return p
	case of.Spec.Suspend:
		p.Condition = condition(metav1.ConditionFalse, v1alpha1.ReasonSuspended, "No snapshots are made: spec.snapshots.suspend is true")
		p.Status.Schedule, p.Status.DecidedUntil, p.Status.NextScheduleTime = "", nil, nil
		return p
	}
	until := p.begin(of, now)
	if due, ok := times.Prev(now.Add(time.Nanosecond)); ok && due.After(until) {
		until = due
		p.make(of, scheduled, due.UTC(), waits != nil)
	}
	p.Status.DecidedUntil, p.Status.NextScheduleTime = &metav1.Time{Time: until.UTC()}, nil
	if next, ok := times.Next(now); ok {
		p.Status.NextScheduleTime, p.Again = &metav1.Time{Time: next.UTC()}, next
	}
	return p
}

// make plans the snapshot for a scheduled time. An earlier manager may have made it, without writing that down. The time is left out
// if none is made now.
func (p *Plan) make(of Of, scheduled []Snapshot, due time.Time, waits bool) {
	name := NameOf(of.GetName(), due)
	exists := slices.ContainsFunc(scheduled, func(s Snapshot) bool { return s.GetName() == name })
	if !exists && waits {
		return
	}
	p.Status.LastScheduleTime, p.Status.LastSnapshot = &metav1.Time{Time: due}, name
	if !exists {
		p.Create = due
		p.Condition = condition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "The %s %s is not taken yet", of.Kind, name)
	}
}

// begin returns the time after which scheduled times count. Times before the schedule was set or changed do not count.
func (p *Plan) begin(of Of, now time.Time) time.Time {
	key := of.Spec.Schedule + " " + string(cmp.Or(of.Spec.TimeZone, "UTC"))
	until := p.Status.DecidedUntil
	if p.Status.Schedule == key && until != nil && !until.After(now.Add(maxClockSkew)) {
		return until.Time
	}
	isNew := p.Status.Schedule == "" && of.GetGeneration() <= 1
	p.Status.Schedule = key
	if isNew {
		return of.GetCreationTimestamp().Time
	}
	return now.Truncate(time.Second)
}

// whyNoneIsMade returns the condition if no snapshot is made now; nil if one may be.
func whyNoneIsMade(of Of, scheduled []Snapshot) *metav1.Condition {
	for _, s := range scheduled {
		if s.TakenAt == nil && s.GetDeletionTimestamp().IsZero() {
			message := "it waits for its controller"
			if s.Ready != nil {
				message = s.Ready.Message
			}
			return ptr.To(condition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "The %s %s is not taken yet: %s", of.Kind, s.GetName(), message))
		}
	}
	if of.Idle != nil {
		return ptr.To(condition(metav1.ConditionFalse, of.Idle.Reason, "%s", of.Idle.Message))
	}
	return nil
}

// conditionOf returns the condition about the last snapshot that was taken.
func conditionOf(of Of, scheduled []Snapshot) metav1.Condition {
	last := slices.IndexFunc(scheduled, func(s Snapshot) bool { return s.TakenAt != nil })
	if last < 0 {
		return condition(metav1.ConditionTrue, v1alpha1.ReasonNotDue, "No snapshot was due yet")
	}
	newest := scheduled[last]
	if ready := newest.Ready; ready != nil && ready.Status != metav1.ConditionTrue {
		return condition(ready.Status, v1alpha1.ReasonSnapshotNotAvailable, "The last %s, %s, cannot be used: %s", of.Kind, newest.GetName(), ready.Message)
	}
	return condition(metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, "The last %s, %s, is taken", of.Kind, newest.GetName())
}

// newestFirst returns the snapshots in the order in which the API server has created them. The time at which a host took one is not
// trusted, and one that was created in the future was created by a wrong clock: it comes last, so that it does not outlive the others.
func newestFirst(scheduled []Snapshot, now time.Time) []Snapshot {
	limit := now.Add(maxClockSkew)
	rank := func(s Snapshot) int {
		if s.GetCreationTimestamp().After(limit) {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(slices.Values(scheduled), func(a, b Snapshot) int {
		created := a.GetCreationTimestamp().Time
		return cmp.Or(rank(a)-rank(b), b.GetCreationTimestamp().Compare(created), strings.Compare(b.GetName(), a.GetName()))
	})
}

// selectSurplus returns the snapshots to delete: all older than the newest keep that are ready. The newest is first.
func selectSurplus(scheduled []Snapshot, keep int) []Snapshot {
	taken := slices.DeleteFunc(slices.Clone(scheduled), func(s Snapshot) bool { return s.TakenAt == nil })
	for i := range taken {
		if keep == 0 {
			return slices.DeleteFunc(taken[i:], func(s Snapshot) bool { return !s.GetDeletionTimestamp().IsZero() })
		}
		if ready := taken[i].Ready; ready != nil && ready.Status == metav1.ConditionTrue {
			keep-- // others have lost their files
		}
	}
	return nil
}

// NameOf returns the name of the snapshot for a scheduled time. A time has one name, so that it has one snapshot.
func NameOf(of string, at time.Time) string {
	suffix := "-scheduled-" + at.UTC().Format("20060102-150405")
	return names.Shorten(of, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// Times returns the scheduled times.
func Times(of Of) (*cron.Plan, *field.Error) {
	path := field.NewPath("spec", "snapshots")
	location, err := cron.LoadLocation(string(of.Spec.TimeZone))
	if err != nil {
		return nil, field.Invalid(path.Child("timeZone"), of.Spec.TimeZone, err.Error())
	}
	name := of.GetName()
	if namespace := of.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	schedule, err := cron.Parse(of.Spec.Schedule, name)
	if err != nil {
		return nil, field.Invalid(path.Child("schedule"), of.Spec.Schedule, cron.Detail(err, of.Spec.Schedule))
	}
	times, err := cron.New(cron.Options{Schedules: []*cron.Schedule{schedule}, Location: location, Anchor: of.GetCreationTimestamp().Time})
	if err != nil {
		return nil, field.Invalid(path.Child("schedule"), of.Spec.Schedule, err.Error())
	}
	return times, nil
}

// maxMessage is how much of a message the API accepts and a user can read.
const maxMessage = 4096

func condition(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	text := fmt.Sprintf(message, args...)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " ..."
	}
	return metav1.Condition{Type: v1alpha1.ConditionSnapshotsUpToDate, Status: status, Reason: reason, Message: text}
}
