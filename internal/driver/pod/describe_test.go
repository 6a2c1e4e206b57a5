package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// world is what describe sees, and how it differs from a machine that runs and is ready.
type world struct {
	rec record
	pod *corev1.Pod
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.rec = record{Machine: newMachine(), Run: "one"}
	w.pod = newPod(&record{Started: &w.rec.Machine, Run: "one"}, images{}, emulated, false)
	w.pod.Spec.NodeName = "a"
	w.pod.CreationTimestamp = w.ago(2 * time.Minute)
	w.pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: w.ago(time.Minute)},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: w.ago(time.Minute)},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.ago(90 * time.Second)}}}},
	}
	return w
}

func (w *world) ago(d time.Duration) metav1.Time { return metav1.NewTime(w.now.Add(-d)) }

// unready makes the Pod one whose kubelet has found some time ago that it is not ready.
func (w *world) unready(ago time.Duration) {
	for i := 1; i <= 2; i++ {
		condition := &w.pod.Status.Conditions[i]
		condition.Status, condition.Reason, condition.LastTransitionTime = corev1.ConditionFalse, "ContainersNotReady", w.ago(ago)
	}
}

func (w *world) over(phase corev1.PodPhase, ended launcher.Ended, reason string) {
	w.pod.Status.Phase = phase
	w.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 1, Message: string(mustJSON(ended)), Reason: reason, StartedAt: w.ago(time.Minute), FinishedAt: w.ago(time.Second),
	}}
}

func (w *world) waiting(reason, message string) {
	w.pod.Status.Phase = corev1.PodPending
	w.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// unscheduled makes the Pod one for which the scheduler has just found no node.
func (w *world) unscheduled(message string) {
	w.pod.Spec.NodeName, w.pod.CreationTimestamp = "", w.ago(time.Second)
	w.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}}
}

// Memory that a Pod without a node would load is not discarded by a stop that only makes way for another size.
func TestBlockedStart(t *testing.T) {
	mayBeAsleep := func(w *world) {
		started := w.rec.Machine
		started.Pod.EvictionPolicy = v1alpha1.EvictionSleep
		w.rec.Started = &started
	}
	for name, test := range map[string]struct {
		change                func(*world)
		unschedulable, waking bool
	}{
		"it boots":              {func(*world) {}, true, false},
		"it waits for an image": {func(w *world) { w.waiting("ErrImagePull", "not found"); w.pod.CreationTimestamp = w.ago(time.Minute) }, false, false},
		"it wakes": {func(w *world) {
			w.pod.Spec = newPod(&record{Started: &w.rec.Machine, Run: "one"}, images{}, emulated, true).Spec
		}, true, true},
		"it may wake": {mayBeAsleep, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.unscheduled("too big")
			if !test.unschedulable {
				w = newWorld(t)
			}
			test.change(w)
			secret := newSecret(recordNamespace, &w.rec, nil)
			got, err := describe(secret, w.pod, nil, w.now)
			if err != nil || got.Blocked == nil || got.Blocked.Unschedulable != test.unschedulable || got.Blocked.Waking != test.waking {
				t.Errorf("blocked by %+v, %v", got.Blocked, err)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		state  backend.State
		task   backend.Task
		agent  backend.Agent
		cause  backend.Cause
		says   string
	}{
		"it runs":      {func(*world) {}, backend.StateRunning, "", backend.AgentConnected, "", ""},
		"never ran":    {func(w *world) { w.pod, w.rec.Run = nil, "" }, backend.StateStopped, "", "", "", ""},
		"was stopped":  {func(w *world) { w.pod, w.rec.Stopped = nil, true }, backend.StateStopped, "", "", backend.CauseRequested, ""},
		"its Pod left": {func(w *world) { w.pod = nil }, backend.StateStopped, "", "", backend.CauseHost, "its Pod is gone"},
		"was refused": {func(w *world) { w.pod, w.rec.Failure = nil, &failure{Message: "quota"} }, backend.StateStopped, "", "",
			backend.CauseStartFailed, "quota"},
		"boots": {func(w *world) {
			w.unready(2 * time.Minute)
		}, backend.StateRunning, "", backend.AgentWaiting, "", ""},
		"lost its agent": {func(w *world) { w.unready(time.Minute) }, backend.StateRunning, "", backend.AgentLost, "", ""},
		"is stopping":    {func(w *world) { w.pod.DeletionTimestamp = ptr.To(w.ago(-time.Second)) }, backend.StateRunning, backend.TaskStop, backend.AgentConnected, "", ""},
		"its node does not confirm its end": {func(w *world) { w.pod.DeletionTimestamp = ptr.To(w.ago(time.Minute)) }, backend.StateUnknown, "", "", "",
			"the node a does not confirm that the Pod keelson-"},
		"powered off": {func(w *world) {
			w.over(corev1.PodSucceeded, launcher.Ended{Cause: launcher.CauseGuestShutdown}, "Completed")
		},
			backend.StateStopped, "", "", backend.CauseGuestShutdown, ""},
		"stopped after its end": {func(w *world) {
			w.over(corev1.PodFailed, launcher.Ended{Cause: launcher.CauseGuestPanic}, "Error")
			w.rec.Stopped = true
		}, backend.StateStopped, "", "", backend.CauseRequested, ""},
		"another run was stopped": {func(w *world) {
			w.over(corev1.PodFailed, launcher.Ended{Cause: launcher.CauseGuestPanic}, "Error")
			w.rec.Stopped, w.rec.Run = true, "two"
		}, backend.StateStopped, "", "", backend.CauseGuestPanic, ""},
		"is asleep": {func(w *world) {
			w.over(corev1.PodSucceeded, launcher.Ended{Cause: launcher.CauseAsleep}, "Completed")
		}, backend.StateAsleep, "", "", "", ""},
		"is asleep, and its Pod left": {func(w *world) { w.pod, w.rec.Asleep = nil, &asleep{} }, backend.StateAsleep, "", "", "", ""},
		"is asleep, and cannot wake": {func(w *world) {
			w.pod, w.rec.Asleep, w.rec.Failure = nil, &asleep{}, &failure{Message: "quota"}
		}, backend.StateAsleep, "", "", backend.CauseStartFailed, "quota"},
		"was stopped while it was asleep": {func(w *world) {
			w.over(corev1.PodSucceeded, launcher.Ended{Cause: launcher.CauseAsleep}, "Completed")
			w.rec.Stopped, w.rec.Epoch = true, "one"
		}, backend.StateStopped, "", "", backend.CauseRequested, ""},
		"fell asleep when it was to be stopped": {func(w *world) {
			w.over(corev1.PodSucceeded, launcher.Ended{Cause: launcher.CauseAsleep}, "Completed")
			w.rec.Stopped = true
		}, backend.StateAsleep, "", "", "", ""},
		"was evicted, and may sleep": {func(w *world) {
			started := w.rec.Machine
			started.Pod.EvictionPolicy = v1alpha1.EvictionSleep
			w.pod, w.rec.Started = nil, &started
		}, backend.StateAsleep, "", "", "", ""},
		"powered off before it fell asleep": {func(w *world) {
			w.over(corev1.PodSucceeded, launcher.Ended{Cause: launcher.CauseGuestShutdown}, "Completed")
			w.rec.Asleep = &asleep{}
		}, backend.StateStopped, "", "", backend.CauseGuestShutdown, ""},
		"its memory was lost": {func(w *world) {
			w.over(corev1.PodFailed, launcher.Ended{Cause: launcher.CauseMemoryLost, Message: "damaged"}, "Error")
		}, backend.StateStopped, "", "", backend.CauseMemoryLost, "damaged"},
		"out of memory":     {func(w *world) { w.over(corev1.PodFailed, launcher.Ended{}, "OOMKilled") }, backend.StateStopped, "", "", backend.CauseError, "OOMKilled: "},
		"the launcher died": {func(w *world) { w.over(corev1.PodFailed, launcher.Ended{}, "Error") }, backend.StateStopped, "", "", backend.CauseHost, "status 1"},
		"kubelet refused it": {func(w *world) {
			w.pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", Message: "no room"}
		}, backend.StateStopped, "", "", backend.CauseStartFailed, "OutOfmemory: no room"},
		"starts": {func(w *world) { w.waiting("ContainerCreating", "") }, backend.StateStopped, backend.TaskStart, "", "", ""},
		"has no image": {func(w *world) { w.waiting("ErrImagePull", "not found") }, backend.StateStopped, backend.TaskStart, "", "",
			"ErrImagePull: not found"},
		"waits for its image, not for long": {func(w *world) {
			w.waiting("ErrImagePull", "not found")
			w.pod.CreationTimestamp = w.ago(startTimeout - time.Second)
		}, backend.StateStopped, backend.TaskStart, "", "", ""},
		"has no node": {func(w *world) { w.unscheduled("too big") }, backend.StateStopped, backend.TaskStart, "", "", "too big"},
		"has no node, and was stopped": {func(w *world) {
			w.unscheduled("too big")
			w.pod.DeletionTimestamp = ptr.To(w.ago(time.Second))
		}, backend.StateStopped, backend.TaskStop, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			secret := newSecret(recordNamespace, &w.rec, nil)
			got, err := describe(secret, w.pod, nil, w.now)
			if err != nil || got.State != test.state || got.Task != test.task || got.Agent != test.agent || got.Identity != w.rec.Machine.Identity {
				t.Errorf("got %+v, %v", got, err)
			}
			var cause backend.Cause
			message := got.Message
			if got.Ended != nil {
				cause, message = got.Ended.Cause, got.Ended.Message
			}
			if got.Blocked != nil {
				message = got.Blocked.Message
			}
			if cause != test.cause || !strings.Contains(message, test.says) || test.says == "" && message != "" {
				t.Errorf("ended as %q: %s", cause, message)
			}
		})
	}
}

func TestPending(t *testing.T) {
	w := newWorld(t)
	w.rec.Machine.MemoryBytes, w.rec.Machine.DiskBytes = 1<<30, 1<<30
	w.rec.Machine.Ports = append(w.rec.Machine.Ports, v1alpha1.Port{Name: "web", Port: 80, Protocol: v1alpha1.ProtocolTCP})
	w.rec.Machine.Service, w.rec.Machine.Display = true, v1alpha1.DisplayVGA
	w.rec.Machine.Pod.Template = &v1alpha1.PodTemplate{Spec: v1alpha1.PodScheduling{PriorityClassName: "high"}}
	secret := newSecret(recordNamespace, &w.rec, &backend.Seed{UserData: "new"})
	got, err := describe(secret, w.pod, nil, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"resource.memory", "resource.rootDisk", "display", "ports", "cloudInit", "pod.template"}; !slices.Equal(got.Pending, want) {
		t.Errorf("pending %q, want %q", got.Pending, want)
	}
	if len(got.Endpoints) != 2 || got.Endpoints[0].Address != "10.0.0.7:22" || got.Service == nil || got.Service.Ports["ssh"] != 22 || got.Service.Ports["web"] != 0 {
		t.Errorf("endpoints %+v, Service %+v", got.Endpoints, got.Service)
	}
}
