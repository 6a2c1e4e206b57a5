package controlplane_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/writer"
)

// requireWorking proves that every component does its work: a Deployment of two replicas becomes available.
// kube-controller-manager makes the pods, kube-scheduler binds them and kwok says that they run.
func requireWorking(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	replicas := int32(2)
	labels := map[string]string{"app": name}
	deployments := c.AppsV1().Deployments(metav1.NamespaceDefault)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}},
			},
		},
	}
	began := time.Now()
	eventually(t, "the API takes a Deployment", func() bool {
		_, err := deployments.Create(t.Context(), deployment, metav1.CreateOptions{})
		return err == nil
	})
	eventually(t, "the Deployment "+name+" is available", func() bool {
		d, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == replicas
	})
	t.Logf("the Deployment %s was available after %s", name, time.Since(began))
}

// TestLongAcknowledgedObjectsSurviveKills kills each component, then all of them and the program that looks after them, and
// checks that no object is lost that a client was told was written.
//
// What it proves: processes may die at any moment. A power cut is more: there the kernel dies with what it has not
// written to the disk yet. Against that etcd syncs each write before it acknowledges it (fsync is on, see
// TestCommandLines), which no test can prove that leaves the machine running.
func TestLongAcknowledgedObjectsSurviveKills(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	h := startHelper(t, helperArgs{Dir: dir, Binary: binary, Nodes: 1})
	h.mustBeReady(t)
	c := client(t, dir)
	w := writer.Start(t, always(c), "written")
	for _, name := range names {
		w.AwaitProgress(t)
		var before map[string]int
		eventually(t, "all components run", func() bool { // some end with the one that was killed before
			before = running(t, dir)
			return len(before) == len(names)
		})
		began := time.Now()
		kill(t, before[name])
		eventually(t, name+" comes back", func() bool {
			pid := running(t, dir)[name]
			return pid != 0 && pid != before[name]
		})
		back := time.Since(began)
		w.AwaitProgress(t)
		t.Logf("%s: back after %s, writes succeed after %s", name, back, time.Since(began))
	}
	requireWorking(t, c, "after-single-kills")
	requireProcesses(t, dir, once(names...))

	w.AwaitProgress(t)
	pids := running(t, dir)
	h.kill() // first, or it starts again what we kill
	for _, pid := range pids {
		signals.Try(t, pid, syscall.SIGKILL) // some end with the first that is killed
	}
	w.Stop()
	eventually(t, "everything is gone", func() bool { return len(census(t, dir)) == 0 })

	start(t, controlplane.Options{Dir: dir, Binary: binary, Nodes: 1})
	w.RequireAll(t, c)
	requireWorking(t, c, "after-all-were-killed")
}

// TestDamagedData is what a user sees whose disk has lost etcd's data: soon, and with the reason.
func TestDamagedData(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	db := filepath.Join(dir, "etcd", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte(strings.Repeat("garbage ", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: binary})
	if err == nil {
		t.Fatal("the start succeeded")
	}
	t.Logf("failed after %s: %v", time.Since(began), err)
	for _, text := range []string{"etcd has failed 3 times", filepath.Join(dir, "logs", "etcd.log"), "invalid database"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q", text)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s to fail", took)
	}
	requireGone(t, dir)
	if data, err := os.ReadFile(db); errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(string(data), "garbage") {
		t.Errorf("the damaged file was changed (%v): somebody may want to repair it", err)
	}
}
