package docker

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// foreign creates a container that is not Keelson's.
func (w *fixture) foreign(name string, labels map[string]string) {
	w.Helper()
	image, err := w.driver.ensureGuest(w.Context())
	w.do(err)
	_, err = w.api.ContainerCreate(w.Context(), client.ContainerCreateOptions{
		Name: name, Config: &container.Config{Image: image, Labels: labels},
	})
	w.do(err)
	w.Cleanup(func() {
		_, err := w.api.ContainerRemove(context.WithoutCancel(w.Context()), name, client.ContainerRemoveOptions{})
		if err != nil {
			w.Error(err)
		}
	})
}

func TestForeignContainers(t *testing.T) {
	w := newFixture(t)
	w.foreign("keelson-other", nil)
	w.foreign(containerName(uid), map[string]string{labelUID: "0b5b4d8e-0000-4000-8000-0000000000ab"})
	if server := w.server(); server != nil {
		t.Errorf("a foreign container is observed as %+v", server)
	}
	w.do(w.driver.Delete(t.Context(), small(uid).Identity, backend.DeleteOptions{}))
	w.do(w.driver.Create(t.Context(), small(uid)))
	failed := w.eventually("it has failed", func(s *backend.Server) bool { return s != nil && s.Ended != nil && s.Task == backend.TaskNone })
	if failed.Ended.Cause != backend.CauseCreateFailed || !strings.Contains(failed.Ended.Message, "exists and was not created by Keelson") {
		t.Errorf("failed with %+v", failed.Ended)
	}
	if got := w.containers(t.Context()); len(got) != 2 {
		t.Errorf("containers are %v", got)
	}
	harness.Eventually(t, "it is deleted", func() bool {
		return w.driver.Delete(t.Context(), small(uid).Identity, backend.DeleteOptions{}) == nil
	})
}

func TestMissingImage(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	machine.Image = &v1alpha1.Image{Container: "127.0.0.1:9/nothing:1"}
	w.do(w.driver.Create(t.Context(), machine))
	failed := w.eventually("it has failed", func(s *backend.Server) bool { return s != nil && s.Ended != nil && s.Task == backend.TaskNone })
	if failed.State != backend.StateAbsent || failed.Ended.Cause != backend.CauseCreateFailed ||
		!strings.Contains(failed.Ended.Message, "pull the image 127.0.0.1:9/nothing:1") {
		t.Errorf("failed with %+v, %+v", failed, failed.Ended)
	}
	w.open()
	if again := w.server(); again == nil || again.Ended == nil || again.Ended.Run != failed.Ended.Run {
		t.Errorf("a new manager observes %+v: the failure would count twice", again)
	}
	w.remove(backend.DeleteOptions{})
}

func TestFailedStart(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	w.create(machine)
	// The engine finds out only at the start that the program does not exist.
	image, err := w.driver.ensureGuest(t.Context())
	w.do(err)
	_, err = w.api.ContainerRemove(t.Context(), containerName(uid), client.ContainerRemoveOptions{})
	w.do(err)
	options := newContainer(&machine, image)
	options.Config.Entrypoint = []string{"/nothing"}
	options.HostConfig.Init = nil
	_, err = w.api.ContainerCreate(t.Context(), options)
	w.do(err)
	w.do(w.driver.Start(t.Context(), machine))
	failed := w.eventually("it has failed", func(s *backend.Server) bool { return s != nil && s.Ended != nil && s.Task == backend.TaskNone })
	if failed.Ended.Cause != backend.CauseStartFailed || failed.State != backend.StateStopped {
		t.Errorf("failed with %+v, %+v", failed, failed.Ended)
	}
	if stopped := w.stop(0); stopped.Ended == nil || stopped.Ended.Cause != backend.CauseRequested {
		t.Errorf("after a stop: %+v", stopped.Ended)
	}
	w.remove(backend.DeleteOptions{})
}

func TestUnresponsiveEngine(t *testing.T) {
	w := newFixture(t)
	run := w.run(small(uid)).Run
	thaw := w.engine.freeze(t)
	brief := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return call(ctx)
	}
	harness.Eventually(t, "the engine is frozen", func() bool {
		return brief(func(ctx context.Context) error { _, err := w.api.Ping(ctx, client.PingOptions{}); return err }) != nil
	})
	for what, call := range map[string]func(context.Context) error{
		"Observe": func(ctx context.Context) error { _, err := w.driver.Observe(ctx, small(uid).Identity); return err },
		"List":    func(ctx context.Context) error { _, err := w.driver.List(ctx); return err },
		"Create":  func(ctx context.Context) error { return w.driver.Create(ctx, small(uid)) },
		"Start":   func(ctx context.Context) error { return w.driver.Start(ctx, small(uid)) },
		"Stop":    func(ctx context.Context) error { return w.driver.Stop(ctx, small(uid).Identity, 0) },
		"Delete": func(ctx context.Context) error {
			return w.driver.Delete(ctx, small(uid).Identity, backend.DeleteOptions{})
		},
	} {
		if err := brief(call); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	thaw()
	if server := w.eventually("it answers", is(backend.StateRunning)); server.Run != run {
		t.Errorf("not the same run: %+v", server)
	}
	w.remove(backend.DeleteOptions{})
}

func TestKilledEngine(t *testing.T) {
	before := listenPause
	listenPause = 20 * time.Millisecond
	t.Cleanup(func() { listenPause = before })
	w := newFixture(t)
	run := w.run(small(uid)).Run
	w.engine.kill(t)
	if _, err := w.driver.Observe(t.Context(), small(uid).Identity); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Observe without an engine: %v", err)
	}
	for len(w.reported) > 0 {
		<-w.reported
	}
	w.engine.start(t)
	// A restart of the engine may end its containers or adopt them; both are fine.
	harness.Eventually(t, "Watch reports the machine", func() bool { return len(w.reported) > 0 && (<-w.reported).UID == uid })
	server := w.eventually("it is known again", func(s *backend.Server) bool { return s != nil && s.Task == backend.TaskNone })
	if server.Run != run || !server.IsOn() && (server.Ended == nil || server.Ended.Cause == backend.CauseRequested) {
		t.Errorf("after a restart of the engine: %+v, ended %+v", server, server.Ended)
	}
	w.start(small(uid))
	w.remove(backend.DeleteOptions{})
}

func TestStateDirectoryRemoved(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	machine.Seed = &backend.Seed{UserData: "#cloud-config\n"}
	machine.Ports = []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}}
	before := w.run(machine)
	w.do(w.driver.Close())
	w.do(os.RemoveAll(w.options.StateDir))
	w.open()
	lost := w.eventually("it runs", is(backend.StateRunning))
	if lost.Run != before.Run || lost.Hash != "" {
		t.Errorf("a manager without records observes %+v", lost)
	}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	again := w.server()
	if again.Hash != machine.Hash || len(again.Pending) > 0 || !slices.Equal(again.Endpoints, before.Endpoints) || len(again.Endpoints) != 1 {
		t.Errorf("after the spec was applied again: %+v, before: %+v", again, before)
	}
	w.remove(backend.DeleteOptions{})
}

func TestContainerRemovedByHand(t *testing.T) {
	w := newFixture(t)
	w.run(small(uid))
	_, err := w.api.ContainerRemove(t.Context(), containerName(uid), client.ContainerRemoveOptions{Force: true})
	w.do(err)
	if server := w.server(); server != nil {
		t.Errorf("there is %+v", server)
	}
	w.run(small(uid))
	w.remove(backend.DeleteOptions{})
}

// Changes in the engine are reported without polling.
func TestEvents(t *testing.T) {
	w := newFixture(t)
	w.run(small(uid))
	for what, change := range map[string]func() error{
		"its death": func() error {
			_, err := w.api.ContainerKill(t.Context(), containerName(uid), client.ContainerKillOptions{Signal: "SIGKILL"})
			return err
		},
		"a pause": func() error {
			w.start(small(uid))
			_, err := w.api.ContainerPause(t.Context(), containerName(uid), client.ContainerPauseOptions{})
			return err
		},
	} {
		for len(w.reported) > 0 {
			<-w.reported
		}
		w.do(change())
		harness.Eventually(t, what+" is reported", func() bool { return len(w.reported) > 0 && (<-w.reported) == small(uid).Identity })
	}
	w.remove(backend.DeleteOptions{})
}

func TestStopAll(t *testing.T) {
	w := newFixture(t)
	other := small("0b5b4d8e-0000-4000-8000-0000000000ab")
	run := w.run(small(uid)).Run
	w.do(w.driver.Create(t.Context(), other))
	harness.Eventually(t, "the other machine is created", func() bool {
		server, err := w.driver.Observe(t.Context(), other.Identity)
		return err == nil && is(backend.StateStopped)(&server)
	})
	w.do(w.driver.Close())
	w.do(StopAll(t.Context(), w.options.StateDir, time.Second))
	w.open()
	stopped := w.eventually("it is off", is(backend.StateStopped))
	if stopped.Run != run || stopped.Ended == nil || stopped.Ended.Cause != backend.CauseRequested {
		t.Errorf("server is %+v, ended %+v", stopped, stopped.Ended)
	}
	harness.Eventually(t, "the other machine is deleted", func() bool {
		return w.driver.Delete(t.Context(), other.Identity, backend.DeleteOptions{}) == nil
	})
	w.remove(backend.DeleteOptions{})
}

func TestDeleteAll(t *testing.T) {
	w := newFixture(t)
	w.run(small(uid))
	w.do(w.driver.Close())
	w.do(DeleteAll(t.Context(), w.options.StateDir, 0))
	if left := w.leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	w.open()
	w.run(small(uid))
	w.do(w.driver.Close())
	path := (&machine{d: w.driver, id: small(uid).Identity}).recordPath()
	before, err := os.ReadFile(path)
	w.do(err)
	gone := strings.ReplaceAll(string(before), w.engine.host(), "unix:///nowhere/docker.sock")
	w.do(atomicfile.Write(path, []byte(gone), atomicfile.Volatile))
	if err := DeleteAll(t.Context(), w.options.StateDir, 0); !errors.Is(err, backend.ErrMissing) || !strings.Contains(err.Error(), w.options.StateDir) {
		t.Errorf("machines of a missing engine were deleted: %v", err)
	}
	w.do(StopAll(t.Context(), w.options.StateDir, 0))
	w.do(atomicfile.Write(path, before, atomicfile.Volatile))
	w.open()
	w.remove(backend.DeleteOptions{})
}
