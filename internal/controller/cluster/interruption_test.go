package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Whatever takes the API away, no condition says that the cluster is available, and a warning is recorded only for what nobody has asked for.
func TestSummarizeInterruption(t *testing.T) {
	available := cases{"True Available", "True Available", "True Available"}
	all := func(state string) cases { return cases{state, state, state} }
	busy := &Operation{State: v1alpha1.OperationProcessing}
	failed := &Operation{State: v1alpha1.OperationFailed, Description: "no space left"}
	answers, silent := &Probe{OK: true}, &Probe{Failing: "connection refused"}
	for _, tt := range []struct {
		name    string
		before  string // all three conditions; empty means True
		outside Observation
		probe   *Probe
		action  action
		want    cases
		warned  bool
	}{
		{name: "all is well", outside: running("", ""), probe: answers, want: available},
		{name: "the API is replaced for a change", outside: changing(running("kube-apiserver", ""), busy), probe: answers, want: all("False Updating")},
		{name: "everything is replaced for another version", outside: changing(running("etcd kube-apiserver", "it has ended with exit code 0"), busy),
			probe: answers, want: all("False Updating")},
		{name: "the new API does not respond yet", outside: changing(running("", ""), busy), probe: silent, want: all("False Updating")},
		{name: "a change that the API survives", outside: changing(running("", ""), busy), probe: answers, want: available},
		{name: "the change is applied, and the restarted API was not probed yet", before: v1alpha1.ReasonUpdating, outside: running("", ""),
			probe: &Probe{Restarted: true, Failing: "not yet"}, want: cases{"False Updating", "True Available", "False Updating"}},
		{name: "the change is applied, and the API responds", before: v1alpha1.ReasonUpdating, outside: running("", ""), probe: answers, want: available},
		{name: "the change has failed", before: v1alpha1.ReasonUpdating, outside: changing(running("kube-apiserver", "it has ended with exit code 1"), failed),
			probe: silent, want: cases{"False ComponentDown", "False ComponentDown", "Unknown NotObserved"}},
		{name: "a manager finds a cluster that was stopped with it", outside: stoppedOutside(running("etcd kube-apiserver", "it has ended with exit code 0")),
			action: apply, want: all("False Starting")},
		{name: "which it starts", before: v1alpha1.ReasonStarting, outside: starting(running("kube-apiserver", "it has ended with exit code 0")),
			want: all("False Starting")},
		{name: "which waits for another attempt", before: v1alpha1.ReasonStarting, outside: stoppedOutside(running("etcd kube-apiserver", "it has ended with exit code 1")),
			action: wait, want: all("False ComponentDown")},
		{name: "the API has crashed", outside: running("kube-apiserver", "it was ended by SIGKILL"), probe: answers,
			want: cases{"False ComponentDown", "False ComponentDown", "True Available"}, warned: true},
		{name: "the API had crashed, was restarted, and was not probed yet", before: v1alpha1.ReasonComponentDown, outside: running("", ""),
			probe: &Probe{Restarted: true}, want: cases{"False ComponentDown", "True Available", "False ComponentDown"}},
		{name: "the API has crashed and was restarted before anybody looked", outside: running("", ""), probe: &Probe{Restarted: true},
			want: cases{"False ProbeFailed", "True Available", "True Available"}, warned: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Status.AppliedConfigHash = "before"
			for _, name := range interrupted {
				is := condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "before")
				if tt.before != "" {
					is = condition(name, metav1.ConditionFalse, tt.before, "before")
				}
				meta.SetStatusCondition(&c.Status.Conditions, is)
			}
			seen := observation{engine: v1alpha1.EngineLocal, outside: tt.outside, probe: tt.probe}
			status := summarize(c, seen, plan{at: time.Unix(1, 0), action: tt.action}, nil)
			var got cases
			for i, name := range interrupted {
				is := meta.FindStatusCondition(status.Conditions, name)
				got[i] = string(is.Status) + " " + is.Reason
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", interrupted, diff)
			}
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if warned := tt.before == "" && ready.Status == metav1.ConditionFalse && !isProgress(ready.Reason); warned != tt.warned {
				t.Errorf("a warning is recorded: %t", warned)
			}
		})
	}
}

// interrupted are the conditions that depend on a running control plane, and cases what they are.
var interrupted = []string{v1alpha1.ConditionReady, v1alpha1.ConditionControlPlaneAvailable, v1alpha1.ConditionEtcdHealthy}

type cases [3]string

// running returns the observation of an applied cluster with some components down.
func running(down, detail string) Observation {
	o := Observation{Exists: true, Applied: true, ConfigHash: "before", Attended: true, Running: down == ""}
	for _, name := range []string{ComponentEtcd, ComponentAPIServer} {
		c := Component{Name: name, Up: true}
		if strings.Contains(down, name) {
			c.Up, c.Detail = false, detail
		}
		o.Components = append(o.Components, c)
	}
	return o
}

func changing(o Observation, operation *Operation) Observation {
	o.Applied, o.Operation = false, operation
	return o
}

func starting(o Observation) Observation {
	o.Operation = &Operation{State: v1alpha1.OperationProcessing}
	return o
}

func stoppedOutside(o Observation) Observation {
	o.Attended, o.Stopped = false, true
	return o
}
