package layers

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"golang.org/x/sys/unix"
)

// Snapshotter is the one of containerd whose layers can be shared, and Root its folder inside the node.
const (
	Snapshotter = "overlayfs"
	Root        = "/var/lib/containerd/io.containerd.snapshotter.v1." + Snapshotter
)

// The descriptors that containerd gets: the folder with the shared layers, and the one with the node's own Root.
const (
	SharedFD = 3
	OwnFD    = 4
)

// Variable is the environment variable that has containerd share layers.
const Variable = "KEELSON_SHARED_LAYERS"

// ShareIfAsked has the containerd that is about to run in this process share layers, if its environment asks for it.
func ShareIfAsked() {
	if os.Getenv(Variable) == "" {
		return
	}
	for _, fd := range []int{SharedFD, OwnFD} {
		unix.CloseOnExec(fd)
	}
	all := registry.Graph(nil)
	registry.Reset()
	for i := range all {
		if r := &all[i]; r.Type == plugins.SnapshotPlugin && r.ID == Snapshotter {
			r.InitFn = shared(r.InitFn)
		}
		registry.Register(&all[i])
	}
}

// shared returns the initialization of a snapshotter with shared layers.
func shared(initialize func(*plugin.InitContext) (any, error)) func(*plugin.InitContext) (any, error) {
	return func(ic *plugin.InitContext) (any, error) {
		made, err := initialize(ic)
		if err != nil {
			return nil, err
		}
		s := &snapshotter{Snapshotter: made.(snapshots.Snapshotter), layers: Dir(opened(SharedFD)), own: filepath.Join(opened(OwnFD), "snapshots")}
		if err := s.layers.Sweep(); err != nil {
			log.L.WithError(err).Warn("Could not delete the shared layers that no node uses")
		}
		return s, nil
	}
}

func opened(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
