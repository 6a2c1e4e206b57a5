//go:build soak

// Package cluster_test creates and deletes local clusters under faults: of the manager, of its API,
// of the clusters' components and of their files.
package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	_ "github.com/keelson-dev/keelson/internal/process/shim" // the test binary is also the shim of its child processes
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// soakFor returns the time during which clusters are created.
func soakFor() time.Duration {
	if os.Getenv("KEELSON_SOAK") == "short" {
		return 40 * time.Second
	}
	return 15 * time.Minute
}

// story is a cluster and its faults.
type story struct {
	*world
	random *rand.Rand
	name   string
	uid    types.UID
}

// fault is a fault to inject.
type fault struct {
	name string
	do   func(*story)
}

// anytime are faults from which a cluster must recover at any time.
var anytime = []fault{
	{"the manager is killed", func(s *story) { s.restartManager() }},
	{"the manager is killed, and the next one soon after", func(s *story) {
		s.restartManager()
		s.pause(time.Second)
		s.restartManager()
	}},
	{"a component is killed", func(s *story) {
		pids := running(s.dir(s.uid))
		if names := slices.Sorted(maps.Keys(pids)); len(names) > 0 {
			signals.Try(s.T, pids[names[s.random.IntN(len(names))]], syscall.SIGKILL)
		}
	}},
	{"all components are killed", func(s *story) { s.killAll(s.dir(s.uid)) }},
	{"the manager and all components are killed", func(s *story) {
		s.killManager()
		s.killAll(s.dir(s.uid))
		s.startManager()
	}},
	{"the API of the manager is suspended", func(s *story) { s.hurtAPI(time.Duration(s.random.Int64N(int64(3 * time.Second)))) }},
	{"the API of the manager is killed", func(s *story) { s.hurtAPI(0) }},
	{"the Secret and the Kubeconfig are deleted", func(s *story) {
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
		defer cancel()
		key := s.secretKey(s.name)
		// They may not exist, and the API may be unavailable.
		_ = s.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		_ = s.client.Delete(ctx, &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	}},
}

// atTheEnd are faults from which a deletion must recover.
var atTheEnd = append([]fault{
	{"the directory is removed", func(s *story) { _ = os.RemoveAll(s.dir(s.uid)) }},
	{"the directory is removed, and the manager killed", func(s *story) {
		s.killManager()
		_ = os.RemoveAll(s.dir(s.uid)) // running components write into it
		s.startManager()
	}},
}, anytime...)

// pause waits for a random time up to most.
func (s *story) pause(most time.Duration) {
	time.Sleep(time.Duration(s.random.Int64N(int64(most)))) //nolint:forbidigo // a random delay is the point
}

// suffer injects a fault at a random moment.
func (s *story) suffer(when string, faults []fault, within time.Duration) {
	s.pause(within)
	f := faults[s.random.IntN(len(faults))]
	s.Logf("%s: %s %s", s.name, f.name, when)
	f.do(s)
}

// run creates a cluster and deletes it.
func (s *story) run() {
	s.uid = s.create(s.name)
	s.suffer("while it is created", anytime, 4*time.Second)
	if s.random.IntN(4) > 0 { // otherwise it is deleted during its creation
		s.awaitReady(s.name, s.uid)
		s.suffer("while it runs", anytime, time.Second)
		if s.random.IntN(2) == 0 {
			s.awaitReady(s.name, s.uid)
		}
	}
	if s.random.IntN(3) == 0 {
		s.suffer("before it is deleted", atTheEnd, time.Second)
	}
	s.delete(s.name)
	s.suffer("while it is deleted", atTheEnd, 400*time.Millisecond)
	s.awaitGone(s.name, s.uid)
}

// TestSoakClusters: whatever happens, a Cluster becomes ready, and a deleted one disappears without
// leftovers.
func TestSoakClusters(t *testing.T) {
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var tellers sync.WaitGroup
	defer tellers.Wait()
	for teller := range uint64(2) {
		tellers.Go(func() {
			random := rand.New(rand.NewPCG(seed, teller))
			deadline := time.Now().Add(soakFor())
			n := 0
			for ; time.Now().Before(deadline) && !t.Failed(); n++ {
				s := &story{world: w, random: random, name: fmt.Sprintf("soak-%d-%d", teller, n)}
				s.run()
			}
			t.Logf("%d clusters", n)
		})
	}
}
