package inside

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/layers"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// sharedLayers is where containerd shares layers with other nodes: the shared folder, and its own beside the snapshots. They are opened
// before the folders of the node cover their paths, on the mount of the machine that has both.
type sharedLayers struct{ shared, own *os.File }

// openLayers opens the folders, or returns nil if the node shares no layers.
func openLayers(s settings.Settings) (*sharedLayers, error) {
	if s.Layers == "" {
		return nil, nil
	}
	const shared, own = "shared", "own"
	paths := map[string]string{shared: s.Layers, own: filepath.Join(s.Dir, "containerd", filepath.Base(layers.Root))}
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	opened, err := openAll(paths)
	if err != nil {
		return nil, err
	}
	return &sharedLayers{shared: opened[shared], own: opened[own]}, nil
}

// mount shows the shared layers to the node, which cannot change them: what runs in it may have access to all of its folders.
func (l *sharedLayers) mount() error {
	if l == nil {
		return nil
	}
	target := filepath.Join(layers.Root, layers.Mountpoint)
	if err := (openedPaths{target: l.shared}).mount(target); err != nil {
		return err
	}
	return mount{"", target, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""}.do()
}

// hand gives the folders to containerd.
func (l *sharedLayers) hand(c component) component {
	if l != nil {
		c.files = []*os.File{layers.SharedFD - 3: l.shared, layers.OwnFD - 3: l.own}
		c.env = append(c.env, layers.Variable+"=1")
	}
	return c
}
