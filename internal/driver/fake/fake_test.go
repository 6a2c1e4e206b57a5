package fake

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

func TestContract(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
	}{
		{"at once", Options{}},
		{"slowly", Options{Latency: 20 * time.Millisecond, BootTime: 20 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Backend {
				driver := New(test.options)
				return drivertest.Backend{
					Open: func(*testing.T) backend.Driver { return driver },
					Machine: func(uid types.UID) backend.Machine {
						return backend.Machine{
							Identity: backend.Identity{UID: uid, Namespace: "default", Name: "vm", Cluster: "cluster"},
							MilliCPU: 1000, MemoryBytes: 64 << 20, Hash: "1",
						}
					},
					Kill:      func(_ *testing.T, uid types.UID) { driver.Crash(uid, backend.CauseHost, "killed") },
					Ephemeral: true,
					Leftovers: func(*testing.T) []string {
						var left []string
						for _, uid := range driver.UIDs() {
							left = append(left, string(uid))
						}
						return left
					},
				}
			})
		})
	}
}
