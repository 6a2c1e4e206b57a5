package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	applyv1alpha1 "github.com/keelson-dev/keelson/client/applyconfiguration/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/client/clientset/versioned/fake"
)

const namespace = "demo"

// onWatch calls act, once, when the informer watches VirtualMachines. The fake clientset does
// not replay what happens between its list and its watch, as an API server would, so
// that a test must not change anything before.
func onWatch(client *fake.Clientset, act func()) {
	watching := make(chan struct{}, 1)
	client.PrependWatchReactor("virtualmachines", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		select {
		case watching <- struct{}{}:
		default:
		}
		return true, w, err
	})
	go func() {
		<-watching
		act()
	}()
}

// setCondition does the work of the controller: it writes a Ready condition.
func setCondition(t *testing.T, client *fake.Clientset, condition metav1.Condition) {
	machines := client.CloudnativeV1alpha1().VirtualMachines(namespace)
	machine, err := machines.Get(t.Context(), "client-go-example", metav1.GetOptions{})
	if err != nil {
		t.Errorf("get the machine: %v", err)
		return
	}
	condition.Type = v1alpha1.ConditionReady
	meta.SetStatusCondition(&machine.Status.Conditions, condition)
	if _, err := machines.UpdateStatus(t.Context(), machine, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update the status: %v", err)
	}
}

func wantGone(t *testing.T, client *fake.Clientset) {
	t.Helper()
	_, err := client.CloudnativeV1alpha1().VirtualMachines(namespace).Get(t.Context(), "client-go-example", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the machine is still there (error %v)", err)
	}
}

func TestRun(t *testing.T) {
	other := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	client := fake.NewClientset(other)
	onWatch(client, func() {
		setCondition(t, client, metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGuestReady})
	})

	var out strings.Builder
	if err := run(t.Context(), client, namespace, &out); err != nil {
		t.Fatal(err)
	}
	want := `created VirtualMachine demo/client-go-example
ready: GuestReady
VirtualMachines in namespace demo: 2
deleted VirtualMachine demo/client-go-example
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	wantGone(t, client)
}

func TestRunCleansUpWhenTheMachineDoesNotBecomeReady(t *testing.T) {
	client := fake.NewClientset()
	ctx, cancel := context.WithCancel(t.Context())
	onWatch(client, cancel)

	err := run(ctx, client, namespace, &strings.Builder{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "is the manager running?") {
		t.Errorf("run returned %v, want that it was cancelled and what to look at", err)
	}
	wantGone(t, client)
}

func TestRunSaysThatTheMachineExists(t *testing.T) {
	client := fake.NewClientset(&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "client-go-example"}})
	if err := run(t.Context(), client, namespace, &strings.Builder{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("run returned %v, want AlreadyExists", err)
	}
	if _, err := client.CloudnativeV1alpha1().VirtualMachines(namespace).Get(t.Context(), "client-go-example", metav1.GetOptions{}); err != nil {
		t.Errorf("the machine of somebody else is gone: %v", err)
	}
}

func TestIsReady(t *testing.T) {
	tests := []struct {
		name      string
		condition metav1.Condition
		want      bool
	}{
		{"the controller has not seen it", metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, ObservedGeneration: 2}, false},
		{"not ready", metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 2}, false},
		{"ready, but as the spec was before", metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 1}, false},
		{"ready", metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			machine := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			machine.Status.Conditions = []metav1.Condition{tt.condition}
			if got := isReady(machine); got != tt.want {
				t.Errorf("isReady = %v, want %v", got, tt.want)
			}
		})
	}
}

// The fake clientset keeps track of who applied what, so programs that use
// server-side apply can be tested with it.
func TestFakeClientsetApplies(t *testing.T) {
	machines := fake.NewClientset().CloudnativeV1alpha1().VirtualMachines(namespace)
	applied := applyv1alpha1.VirtualMachine("a", namespace).WithSpec(applyv1alpha1.VirtualMachineSpec().WithAction(v1alpha1.ActionStopped))
	machine, err := machines.Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "example", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := applyv1alpha1.ExtractVirtualMachine(machine, "example")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(applied, got); diff != "" {
		t.Errorf("extracted (-applied +extracted):\n%s", diff)
	}
}
