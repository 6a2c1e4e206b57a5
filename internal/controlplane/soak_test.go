//go:build soak

package controlplane_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/writer"
)

// soakFor returns how long a soak test works.
func soakFor(full, short time.Duration) time.Duration {
	if os.Getenv("KEELSON_SOAK") == "short" {
		return short
	}
	return full
}

// TestSoakKills ends components and the program that looks after them at random moments and in random ways, while
// objects are written, and checks in the end that none is lost that was acknowledged, and that everything works.
func TestSoakKills(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	args := helperArgs{Dir: dir, Binary: binary, Nodes: 1}
	h := startHelper(t, args)
	h.mustBeReady(t)
	w := writer.Start(t, always(client(t, dir)), "written")

	restart := func() {
		h.kill()
		h = startHelper(t, args)
		h.mustBeReady(t)
	}
	faults := []struct {
		name string
		do   func()
	}{
		{"a component is killed", func() {
			killOne(t, dir, names[random.IntN(len(names))])
		}},
		{"etcd and the API are killed", func() {
			killOne(t, dir, "etcd")
			killOne(t, dir, "kube-apiserver")
		}},
		{"the manager is killed", restart},
		{"all components are killed", func() {
			for _, pid := range running(t, dir) {
				signals.Try(t, pid, syscall.SIGKILL) // it may have ended on its own
			}
		}},
		{"the manager and all components are killed", func() {
			h.kill()
			for _, pid := range running(t, dir) {
				signals.Try(t, pid, syscall.SIGKILL)
			}
			restart()
		}},
		{"the manager is killed while it starts", func() {
			h.kill()
			for _, pid := range running(t, dir) {
				signals.Try(t, pid, syscall.SIGKILL)
			}
			h = startHelper(t, args)
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second)))) //nolint:forbidigo // a random moment is the point
			restart()
		}},
		{"the API stands still for a while", func() {
			pid := running(t, dir)["kube-apiserver"]
			signals.Try(t, pid, syscall.SIGSTOP)
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second)))) //nolint:forbidigo // a random time is the point
			signals.Try(t, pid, syscall.SIGCONT)
		}},
	}
	done := map[string]int{}
	for deadline := time.Now().Add(soakFor(10*time.Minute, 40*time.Second)); time.Now().Before(deadline) && !t.Failed(); {
		fault := faults[random.IntN(len(faults))]
		done[fault.name]++
		fault.do()
		if random.IntN(3) > 0 { // else the next comes on top of it
			w.AwaitProgress(t)
		}
	}
	t.Logf("faults: %v", done)
	w.AwaitProgress(t)
	c := client(t, dir)
	w.RequireAll(t, c)
	requireWorking(t, c, "after-the-soak")
	requireProcesses(t, dir, once(names...))
}

func killOne(t *testing.T, dir, name string) {
	t.Helper()
	signals.Try(t, running(t, dir)[name], syscall.SIGKILL) // the fault before may have ended it
}

// TestSoakEtcdIsAway keeps etcd from starting for so long that kube-apiserver looks for it only now and then, and
// checks that the API is back soon after etcd is.
func TestSoakEtcdIsAway(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	cp := start(t, controlplane.Options{Dir: dir, Binary: binary, APIOnly: true})
	c := client(t, dir)
	w := writer.Start(t, always(c), "written")
	w.AwaitProgress(t)

	// A folder that is not empty stands where etcd's socket belongs.
	inTheWay := filepath.Join(dir, "sockets", "etcd:0")
	pid := running(t, dir)["etcd"]
	kill(t, pid)
	eventually(t, "a folder takes the place of the socket", func() bool {
		_ = os.Remove(inTheWay)
		if os.MkdirAll(filepath.Join(inTheWay, "folder"), 0o700) != nil {
			return false
		}
		now := running(t, dir)["etcd"]
		signals.Try(t, now, syscall.SIGKILL) // if it was faster
		return now == 0
	})
	time.Sleep(soakFor(5*time.Minute, 70*time.Second)) //nolint:forbidigo // being away for long is the point
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	eventually(t, "etcd runs", func() bool { return running(t, dir)["etcd"] != 0 })
	began := time.Now()
	w.AwaitProgress(t)
	t.Logf("writes succeed %s after etcd was back", time.Since(began))
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("writes succeed only %s after etcd was back", took)
	}
	w.RequireAll(t, c)
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
