package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/testing/enginetest"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) {
	if encoded, ok := os.LookupEnv(helperVariable); ok {
		os.Exit(runHelper(encoded))
	}
	env.Main(m)
}

// newOptions returns those of an engine with a directory of its own. Whatever is left there when the test ends is
// ended.
func newOptions(t *testing.T) local.Options {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clusters")
	t.Cleanup(func() {
		if _, err := local.StopAll(t.Context(), dir); err != nil { // the context has ended: it kills
			t.Errorf("Clean up: %v", err)
		}
	})
	return local.Options{
		Dir: dir, Snapshots: etcdsnapshot.Dir(filepath.Join(filepath.Dir(dir), "snapshots")), Nodes: 1, Ephemeral: true, Clock: clock.RealClock{},
		Binary: func() (string, error) { return env.Binary("keelson-kube") },
	}
}

// storeOf returns the store of snapshots of an engine.
func storeOf(opts local.Options, engine *local.Engine) *etcdsnapshot.Store {
	return &etcdsnapshot.Store{Dir: opts.Snapshots, Clock: opts.Clock, Engines: map[v1alpha1.Engine]etcdsnapshot.Saver{v1alpha1.EngineLocal: engine}}
}

// left returns the processes and files of a cluster.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, dir)
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		// That of a process that has ended, or of another user, cannot be read.
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "="+dir+"\x00") {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

func TestContract(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Place {
		opts := newOptions(t)
		dir := func(r cluster.Request) string { return filepath.Join(opts.Dir, string(r.UID)) }
		return enginetest.Place{
			NewEngine: func() cluster.Engine { return local.New(opts) },
			Spec:      v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal},
			Change: func(r *cluster.Request) {
				r.Spec.APIServer = &v1alpha1.APIServer{CertSANs: []string{"demo.example"}, ExtraArgs: map[string]string{"event-ttl": "2h"}}
			},
			Restarts: true,
			Lose: func(r cluster.Request) {
				t.Cleanup(func() { // what runs has no records any more
					if err := controlplane.Destroy(context.WithoutCancel(t.Context()), dir(r), logr.Discard()); err != nil {
						t.Errorf("Clean up: %v", err)
					}
				})
				harness.Eventually(t, "the directory is removed", func() bool {
					// kube-controller-manager makes a folder in it anew as soon as that is gone.
					err := os.RemoveAll(dir(r))
					if err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
						t.Fatal(err)
					}
					return err == nil
				})
			},
			Left: func(r cluster.Request) []string { return left(t, dir(r)) },
		}
	})
}
