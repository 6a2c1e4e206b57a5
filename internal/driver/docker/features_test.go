package docker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// exec runs a shell command in the machine of the test and returns its output.
func (w *fixture) exec(line string) string {
	w.Helper()
	created, err := w.api.ExecCreate(w.Context(), containerName(uid), client.ExecCreateOptions{
		AttachStdout: true, AttachStderr: true, Cmd: []string{"/bin/sh", "-c", line},
	})
	w.do(err)
	attached, err := w.api.ExecAttach(w.Context(), created.ID, client.ExecAttachOptions{})
	w.do(err)
	defer attached.Close()
	var output strings.Builder
	if _, err := stdcopy.StdCopy(&output, &output, attached.Reader); err != nil {
		w.Fatal(err)
	}
	return output.String()
}

func TestDefaultGuest(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	machine.Ports = []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}}
	server := w.run(machine)
	if len(server.Addresses) != 1 || len(server.Endpoints) != 1 || server.Endpoints[0].Address != server.Addresses[0]+":22" {
		t.Errorf("addresses are %v, endpoints %v", server.Addresses, server.Endpoints)
	}
	if got := w.exec("hostname; cat /proc/1/comm; ip addr"); !strings.HasPrefix(got, "vm\n") || !strings.Contains(got, server.Addresses[0]) {
		t.Errorf("unexpected state of the guest:\n%s", got)
	}
	// A clean stop needs no kill.
	began := time.Now()
	const grace = time.Minute // then it is killed
	if stopped := w.stop(grace); stopped.Ended.Cause != backend.CauseRequested {
		t.Errorf("it ended as %+v", stopped.Ended)
	}
	if took := time.Since(began); took >= grace {
		t.Errorf("the guest did not receive the signal to stop: the stop took %v", took)
	}
	w.remove(backend.DeleteOptions{})
}

func TestReconfigure(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	run := w.run(machine).Run
	change := func(hash string, milliCPU, memory int64) *backend.Server {
		t.Helper()
		machine.Hash, machine.MilliCPU, machine.MemoryBytes = hash, milliCPU, memory
		w.do(w.driver.Reconfigure(t.Context(), machine))
		server := w.server()
		if server.Hash != hash || server.Run != run {
			t.Errorf("after the change: %+v", server)
		}
		return server
	}
	limits := func() [2]int64 {
		t.Helper()
		found, err := w.api.ContainerInspect(t.Context(), containerName(uid), client.ContainerInspectOptions{})
		w.do(err)
		return [2]int64{found.Container.HostConfig.NanoCPUs, found.Container.HostConfig.Memory}
	}
	if got := change("2", 1000, 128<<20).Pending; len(got) > 0 || limits() != [2]int64{1e9, 128 << 20} {
		t.Errorf("larger limits: %v pending, limits are %v", got, limits())
	}
	if got := change("3", 250, 96<<20).Pending; len(got) > 0 || limits() != [2]int64{250e6, 96 << 20} {
		t.Errorf("smaller limits: %v pending, limits are %v", got, limits())
	}
	if out := w.exec("dd if=/dev/zero of=/dev/shm/file bs=1048576 count=48"); strings.Contains(out, "error") {
		t.Fatalf("cannot use memory: %s", out)
	}
	if got := change("4", 500, 50<<20).Pending; !slices.Equal(got, []string{"resource.memory"}) || limits() != [2]int64{500e6, 96 << 20} {
		t.Errorf("less memory than in use: %v pending, limits are %v", got, limits())
	}
	w.do(w.driver.Pause(t.Context(), machine.Identity))
	if got := change("5", 1000, 128<<20).Pending; len(got) > 0 || limits() != [2]int64{1e9, 128 << 20} {
		t.Errorf("while paused: %v pending, limits are %v", got, limits())
	}
	change("6", 1000, 40<<20)
	w.stop(0)
	run = w.start(machine).Run
	if got := w.server().Pending; len(got) > 0 || limits() != [2]int64{1e9, 40 << 20} {
		t.Errorf("after a restart: %v pending, limits are %v", got, limits())
	}
	w.remove(backend.DeleteOptions{})
}

func TestSeed(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	machine.Seed = &backend.Seed{UserData: "#cloud-config\nhostname: a\n", NetworkData: "version: 2\n"}
	w.run(machine)
	files := func() string {
		return w.exec("cd /var/lib/cloud/seed/nocloud && for f in *; do echo == $f; cat $f; done")
	}
	want := "== meta-data\n{\"instance-id\":\"" + string(uid) + "\",\"local-hostname\":\"vm\"}\n" +
		"== network-config\nversion: 2\n== user-data\n#cloud-config\nhostname: a\n"
	if diff := cmp.Diff(want, files()); diff != "" {
		t.Errorf("seed (-want +got):\n%s", diff)
	}
	machine.Hash, machine.Seed = "2", &backend.Seed{UserData: "#cloud-config\nhostname: b\n"}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	if got := w.server().Pending; !slices.Equal(got, []string{"cloudInit"}) {
		t.Errorf("pending are %v", got)
	}
	w.stop(0)
	if got := w.start(machine).Pending; len(got) > 0 {
		t.Errorf("after a restart %v are pending", got)
	}
	want = "== meta-data\n{\"instance-id\":\"" + string(uid) + "\",\"local-hostname\":\"vm\"}\n" +
		"== network-config\n== user-data\n#cloud-config\nhostname: b\n"
	if diff := cmp.Diff(want, files()); diff != "" {
		t.Errorf("new seed (-want +got):\n%s", diff)
	}
	machine.Seed, machine.KeepsSeed = nil, true
	w.stop(0)
	if got := w.start(machine).Pending; len(got) > 0 || files() != want {
		t.Errorf("after a start that keeps the seed, %v are pending, and the files are\n%s", got, files())
	}
	w.remove(backend.DeleteOptions{})
}

func TestRetainedDisk(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	w.run(machine)
	w.exec("echo kept >/root/note")
	w.stop(0)
	w.start(machine)
	if got := w.exec("cat /root/note"); got != "kept\n" {
		t.Errorf("after a restart the disk has %q", got)
	}
	w.remove(backend.DeleteOptions{KeepDisk: true})
	image := "keelson-retained/default/vm:" + string(uid)
	w.Cleanup(func() {
		if _, err := w.api.ImageRemove(context.WithoutCancel(t.Context()), image, client.ImageRemoveOptions{}); err != nil {
			t.Errorf("the disk was not retained: %v", err)
		}
	})
	machine.Image = &v1alpha1.Image{Container: image}
	w.run(machine)
	if got := w.exec("cat /root/note"); got != "kept\n" {
		t.Errorf("the retained disk has %q", got)
	}
	w.remove(backend.DeleteOptions{})
}

func TestUsageOfAMachine(t *testing.T) {
	before := samplePeriod
	samplePeriod = 50 * time.Millisecond
	t.Cleanup(func() { samplePeriod = before })
	w := newFixture(t)
	w.run(small(uid))
	server := w.eventually("it is measured", func(s *backend.Server) bool { return s != nil && s.Usage != nil })
	if u := server.Usage; u.CPUSeconds <= 0 || u.ResidentBytes <= 0 || u.GuestBytes <= 0 || u.GuestBytes > 64<<20 || u.Memory <= 0 {
		t.Errorf("it uses %+v", u)
	}
	harness.Eventually(t, "its use is reported", func() bool { return len(w.reported) > 0 })
	if off := w.stop(0); off.Usage != nil {
		t.Errorf("a machine that is off uses %+v", off.Usage)
	}
	w.remove(backend.DeleteOptions{})
}
