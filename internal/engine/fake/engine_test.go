package fake_test

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/testing/enginetest"
)

func TestContract(t *testing.T) {
	enginetest.Run(t, func(*testing.T) enginetest.Place {
		world := fake.NewWorld(clock.RealClock{})
		return enginetest.Place{
			NewEngine: func() cluster.Engine { return fake.New(world) },
			Spec:      v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal},
			Change:    func(r *cluster.Request) { r.Spec.Version = "v1.36.9" },
			Lose: func(r cluster.Request) {
				world.Change(r.UID, func(*fake.Cluster) *fake.Cluster { return nil })
			},
			Left: func(cluster.Request) []string { return world.Names() },
		}
	})
}
