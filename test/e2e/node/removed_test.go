//go:build linux

package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// removedThroughKills removes a node with a volume. The command is killed as soon as it has begun, and the main process after each step.
func (u *user) removedThroughKills(t *testing.T, index int) {
	t.Helper()
	name, dir := node.Name(index), node.Dir(u.data, index)
	volume := u.keeperOn(t, name)
	pid := u.pidOf(t, filepath.Base(dir))
	client := u.client(t)
	command := u.Start(t, "keelson", "node", "remove", "--force", name, "--data-dir", u.data)
	transcript.Eventually(t, "it is to be removed", func() bool { return node.IsBeingRemoved(dir) })
	command.Signal(t, os.Kill)
	steps := []struct {
		what string
		done func() bool
	}{
		{"it is to be removed", func() bool { return true }},
		{"its process has ended", func() bool { return process.IsGone(pid) }},
		{"its Node is deleted", func() bool {
			_, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}},
		{"its volume is deleted", func() bool {
			v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
			return apierrors.IsNotFound(err) || err == nil && v.DeletionTimestamp != nil
		}},
		{"its directory is deleted", func() bool {
			_, err := os.Stat(dir)
			return errors.Is(err, fs.ErrNotExist)
		}},
	}
	for i, step := range steps {
		u.killWhen(t, step.what, step.done)
		if last := i == len(steps)-1; !last && !node.IsBeingRemoved(dir) {
			t.Errorf("%s: the removal had ended before the kill", step.what)
		}
		command.Wait(t)
		command = u.Start(t, "keelson", "up", "--detach", "--vm-driver=fake", "--data-dir", u.data)
	}
	command.Wait(t)
	transcript.Eventually(t, "the removal has ended", func() bool { return !node.IsBeingRemoved(dir) })
	u.hasNothingOf(t, index)
	// The claim has lost its volume.
	u.kubectl(t, "delete", "pvc/kept")
	u.kubectl(t, "wait", "--for=delete", "pv/"+volume, "--timeout", transcript.WaitTimeout.String())
}

// killWhen kills the main process at once when something is done.
func (u *user) killWhen(t *testing.T, what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); !done(); <-ticker.C {
		if time.Since(began) > transcript.WaitTimeout {
			t.Fatalf("Not within %s: %s", transcript.WaitTimeout, what)
		}
	}
	pid, err := process.Holder(controlplane.Processes(u.data))
	if err != nil || pid == 0 {
		t.Fatalf("%s, and the main process is %d: %v", what, pid, err)
	}
	signals.Send(t, pid, syscall.SIGKILL)
	t.Logf("%s: killed %d", what, pid)
	transcript.Eventually(t, "it has ended", func() bool {
		pid, err := process.Holder(controlplane.Processes(u.data))
		return pid == 0 && err == nil
	})
}

// client returns a client of the API.
func (u *user) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := controlplane.AdminConfig(u.data)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
