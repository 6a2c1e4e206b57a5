package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	crontabcmd "github.com/keelson-dev/keelson/internal/cli/crontab"
	"github.com/keelson-dev/keelson/internal/cli/object"
)

// load is what a machine uses, in percent; NaN if it is not known.
type load struct{ cpu, memory float64 }

// text returns a bar; "-" if the part is not known.
func text(percent float64) string {
	if math.IsNaN(percent) {
		return "-"
	}
	return bar(percent)
}

// readiness returns the state by the condition Ready, and its message if the object is at rest or not ready.
func readiness(conditions []metav1.Condition, idle bool) (state, string) {
	ready := meta.FindStatusCondition(conditions, "Ready")
	switch {
	case ready == nil:
		return busy, ""
	case idle:
		return off, ready.Message
	case ready.Status == metav1.ConditionTrue:
		return fine, ""
	case strings.Contains(ready.Reason, "Fail") || strings.Contains(ready.Reason, "Reject") || strings.Contains(ready.Reason, "Invalid") ||
		strings.Contains(ready.Reason, "Down") || strings.Contains(ready.Reason, "Exists"):
		return failing, ready.Message
	}
	return busy, ready.Message
}

func age(object metav1.Object, now time.Time) string {
	return duration.HumanDuration(max(0, now.Sub(object.GetCreationTimestamp().Time)))
}

// newRow returns a row of an object.
func newRow(object metav1.Object, state state, on bool, cells ...string) row {
	if object.GetDeletionTimestamp() != nil {
		state = busy
	}
	return row{uid: object.GetUID(), namespace: object.GetNamespace(), name: object.GetName(), cells: cells, state: state, on: on}
}

func machineRow(vm *vmv1alpha1.VirtualMachine, loads map[types.UID]load, now time.Time) row {
	status := cmp.Or(string(vm.Status.PrintableStatus), "Pending")
	idle := slices.Contains([]vmv1alpha1.PrintableStatus{vmv1alpha1.StatusStopped, vmv1alpha1.StatusPaused, vmv1alpha1.StatusAsleep}, vm.Status.PrintableStatus)
	state, message := readiness(vm.Status.Conditions, idle)
	if vm.Status.PrintableStatus == vmv1alpha1.StatusFailed {
		state = failing
	}
	address := "-"
	if server := vm.Status.Server; server != nil && len(server.Addresses) > 0 {
		address = server.Addresses[0]
	}
	used, found := loads[vm.UID]
	if !found || idle {
		used = load{math.NaN(), math.NaN()}
	}
	return newRow(vm, state, cmp.Or(vm.Spec.Action, vmv1alpha1.ActionActive) == vmv1alpha1.ActionActive,
		status, text(used.cpu), text(used.memory), address, age(vm, now), message)
}

func clusterRow(cluster *clusterv1alpha1.Cluster, now time.Time) row {
	state, _ := readiness(cluster.Status.Conditions, cluster.Status.Phase == clusterv1alpha1.PhaseStopped)
	message := cluster.Status.Message
	switch {
	case cluster.Status.Phase == clusterv1alpha1.PhaseFailed:
		state = failing
	case state == fine:
		message = ""
	}
	return newRow(cluster, state, ptr.Deref(cluster.Spec.Running, true), cmp.Or(string(cluster.Status.Phase), "Pending"),
		cmp.Or(cluster.Status.Version, "-"), cmp.Or(cluster.Status.Endpoint, "-"), age(cluster, now), message)
}

func cronTabRow(cronTab *stablev1.CronTab, now time.Time) row {
	suspended := ptr.Deref(cronTab.Spec.Suspend, false)
	state, message := readiness(cronTab.Status.Conditions, suspended)
	if suspended {
		state = off
	}
	last, next := "-", "-"
	if run := cronTab.Status.LastRun; run != nil {
		last = string(run.Result)
		if last == string(stablev1.RunFailed) {
			state = failing
			if message == "" && meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionLastRunSucceeded) != nil {
				message = meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionLastRunSucceeded).Message
			}
		}
	}
	if active := len(cronTab.Status.Active); active > 0 {
		last = fmt.Sprintf("%d active", active)
	}
	if at := cronTab.Status.NextScheduleTime; at != nil {
		next = "in " + duration.HumanDuration(max(0, at.Sub(now)))
	}
	return newRow(cronTab, state, !suspended, crontabcmd.State(cronTab), cmp.Or(crontabcmd.Schedules(cronTab), "-"), last, next, message)
}

func fooRow(foo *foov1alpha1.Foo, now time.Time) row {
	state, message := readiness(foo.Status.Conditions, false)
	status := "Pending"
	if ready := meta.FindStatusCondition(foo.Status.Conditions, foov1alpha1.ConditionReady); ready != nil {
		status = ready.Reason
	}
	return newRow(foo, state, true, status, fmt.Sprintf("%d/%d", foo.Status.AvailableReplicas, ptr.Deref(foo.Spec.Replicas, 1)), age(foo, now), message)
}

func eventRow(event *corev1.Event, now time.Time) row {
	state := off
	if event.Type == corev1.EventTypeWarning {
		state = failing
	}
	r := newRow(event, state, true, duration.HumanDuration(max(0, now.Sub(object.EventTime(event)))), event.Type, event.Reason, event.Message)
	r.name = strings.ToLower(event.InvolvedObject.Kind) + "/" + event.InvolvedObject.Name
	return r
}

// sorted sorts rows by namespace and name.
func sorted(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name), strings.Compare(string(a.uid), string(b.uid)))
	})
	return rows
}
