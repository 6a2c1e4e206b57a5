package kube

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// api counts the writes, and returns objects with the next version.
type api struct {
	client.SubResourceWriter
	version int
	writes  int
}

func (a *api) Status() client.SubResourceWriter { return a }

func (a *api) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	a.writes++
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	return nil
}

// pod returns a Pod as in a cache, in a phase.
func pod(version int, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid"), ResourceVersion: strconv.Itoa(version)},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// turned returns a copy in another phase.
func turned(before *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	after := before.DeepCopy()
	after.Status.Phase = phase
	return after
}

func TestStaleStatusIsNotWritten(t *testing.T) {
	a := &api{version: 9}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewStatusWriter("Pod", a, clock)
	finish := func(name string, before *corev1.Pod, phase corev1.PodPhase, wantWritten bool, wantAgain time.Duration) {
		t.Helper()
		written, result, err := w.Finish(t.Context(), before, turned(before, phase), Outcome{Urgent: true})
		if err != nil || written != wantWritten || result.RequeueAfter != wantAgain {
			t.Errorf("%s: written %v, again after %v, %v; want %v, %v", name, written, result.RequeueAfter, err, wantWritten, wantAgain)
		}
	}
	old := pod(9, corev1.PodPending)
	finish("the first", old, corev1.PodRunning, true, 0)
	finish("the cache is behind the last write", old, corev1.PodFailed, false, StalePause)
	finish("nothing to write", old, corev1.PodPending, false, 0)
	finish("the cache has the last write", pod(10, corev1.PodRunning), corev1.PodFailed, true, 0)
	finish("another client has written since", pod(17, corev1.PodRunning), corev1.PodFailed, true, 0)
	a.version = 2 // etcd was restored from a backup
	restored := pod(2, corev1.PodPending)
	finish("older than the last write", restored, corev1.PodRunning, false, StalePause)
	clock.SetTime(clock.Now().Add(forgetAfter))
	finish("still older after forgetAfter", restored, corev1.PodRunning, true, 0)
	if a.writes != 4 {
		t.Errorf("%d writes, want 4", a.writes)
	}
}

func TestStatusHoldback(t *testing.T) {
	for _, test := range []struct {
		name    string
		outcome Outcome
		want    time.Duration // until the write; 0 means immediately
	}{
		{"urgent", Outcome{Urgent: true, Hold: time.Minute}, 0},
		{"not urgent", Outcome{}, Holdback},
		{"less than usual", Outcome{Hold: Holdback / 2}, Holdback},
		{"longer than usual", Outcome{Hold: 30 * time.Second}, 30 * time.Second},
		{"an event comes first", Outcome{Acted: true}, longestHold},
		{"an event comes before the hold ends", Outcome{Acted: true, Hold: 30 * time.Second}, 30 * time.Second},
		{"another reconcile comes first", Outcome{Hold: 30 * time.Second, Again: 10 * time.Second}, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			w := NewStatusWriter("Pod", &api{version: 1}, clock)
			before := pod(1, corev1.PodPending)
			after := turned(before, corev1.PodRunning)
			written, result, err := w.Finish(t.Context(), before, after, test.outcome)
			if err != nil || written != (test.want == 0) || result.RequeueAfter != test.want {
				t.Fatalf("written %v, again after %v, %v; want %v", written, result.RequeueAfter, err, test.want)
			}
			if written {
				return
			}
			clock.SetTime(clock.Now().Add(max(Holdback, test.outcome.Hold)))
			if written, _, err := w.Finish(t.Context(), before, after, test.outcome); err != nil || !written {
				t.Errorf("after the hold it is written: %v, %v", written, err)
			}
		})
	}
}
