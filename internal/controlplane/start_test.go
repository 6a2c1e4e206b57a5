package controlplane_test

import (
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// TestStartDetachAndStop shows the life of a control plane: started, left alone, found again with the same processes,
// stopped.
func TestStartDetachAndStop(t *testing.T) {
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	opts := controlplane.Options{
		Dir: t.TempDir(), Binary: binary, Nodes: 2, Log: testr.New(t),
		Progress: func(s controlplane.Step) { t.Logf("%+v at %s", s, time.Since(began)) },
	}
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	if err := cp.Detach(); err != nil {
		t.Error(err)
	}

	began = time.Now()
	cp, err = controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Errorf("nodes after taking over: %d, %v; want 2", len(nodes.Items), err)
	}
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
