package layers

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
)

// snapshotter is containerd's snapshotter for overlayfs, with shared layers. A layer that cannot be shared stays the node's own.
type snapshotter struct {
	snapshots.Snapshotter
	layers Dir
	// own is the folder with the snapshots, on the same mount as the shared layers: elsewhere, the kernel does not link files between them.
	own string
}

// Prepare makes a snapshot for a layer or for a container. That of a shared layer is read-only: containerd then neither fetches the
// layer nor unpacks it.
func (s *snapshotter) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.Prepare(ctx, key, parent, opts...)
	if err != nil {
		return nil, err
	}
	var info snapshots.Info
	for _, opt := range opts {
		if err := opt(&info); err != nil {
			return nil, err
		}
	}
	layer, files := layerName(info.Labels[snapshots.LabelSnapshotRef]), writable(mounts)
	if layer == "" || files == "" {
		return resolve(mounts), nil
	}
	adopted, err := s.layers.Adopt(s.folder(files), layer)
	if err != nil {
		log.G(ctx).WithError(err).WithField("key", key).Warn("Could not use a shared layer")
	}
	if !adopted {
		return mounts, nil
	}
	return []mount.Mount{{Type: "bind", Source: files, Options: []string{"ro", "rbind"}}}, nil
}

// Commit makes the snapshot of a layer permanent, and shares it.
func (s *snapshotter) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	layer := layerName(name)
	if layer == "" {
		return s.Snapshotter.Commit(ctx, name, key, opts...)
	}
	mounts, err := s.Snapshotter.Mounts(ctx, key)
	if err != nil {
		return err
	}
	if err := s.Snapshotter.Commit(ctx, name, key, opts...); err != nil {
		return err
	}
	if files := writable(mounts); files != "" {
		if err := s.layers.Publish(s.folder(files), layer); err != nil {
			log.G(ctx).WithError(err).WithField("name", name).Warn("Could not share a layer with other nodes")
		}
	}
	return nil
}

// View implements snapshots.Snapshotter.
func (s *snapshotter) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.View(ctx, key, parent, opts...)
	return resolve(mounts), err
}

// Mounts implements snapshots.Snapshotter.
func (s *snapshotter) Mounts(ctx context.Context, key string) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.Mounts(ctx, key)
	return resolve(mounts), err
}

// Cleanup implements snapshots.Cleaner: it deletes the files of snapshots that were removed, and the layers that no node uses any more.
func (s *snapshotter) Cleanup(ctx context.Context) error {
	if cleaner, ok := s.Snapshotter.(snapshots.Cleaner); ok {
		if err := cleaner.Cleanup(ctx); err != nil {
			return err
		}
	}
	return s.layers.Sweep()
}

// folder returns the folder of the snapshot with these files.
func (s *snapshotter) folder(files string) string {
	return filepath.Join(s.own, filepath.Base(filepath.Dir(files)))
}

// layerName returns the name of the shared folder for a layer, from the name of its snapshot, which ends with the chain ID; empty for
// other snapshots. It is short: the paths of all layers of an image must fit into a page to be mounted.
func layerName(snapshot string) string {
	id, err := digest.Parse(snapshot[strings.LastIndexByte(snapshot, '/')+1:])
	if err != nil || id.Algorithm() != digest.SHA256 {
		return ""
	}
	hash, err := hex.DecodeString(id.Encoded())
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(hash)
}

// writable returns the folder that is written to by these mounts; empty if there is none.
func writable(mounts []mount.Mount) string {
	if len(mounts) != 1 || mounts[0].ReadOnly() {
		return ""
	}
	if mounts[0].Type == "bind" {
		return mounts[0].Source
	}
	for _, option := range mounts[0].Options {
		if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
			return upper
		}
	}
	return ""
}

// resolve follows the links to shared layers in mounts for a user namespace. containerd mounts the folder that all layers are in once more
// with the IDs of the namespace, and the links would lead out of it.
func resolve(mounts []mount.Mount) []mount.Mount {
	for _, m := range mounts {
		if !slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "uidmap=") }) {
			continue
		}
		for i, option := range m.Options {
			if lower, ok := strings.CutPrefix(option, "lowerdir="); ok {
				m.Options[i] = "lowerdir=" + followAll(strings.Split(lower, ":"))
			}
		}
	}
	return mounts
}

func followAll(paths []string) string {
	for i, path := range paths {
		if followed, err := filepath.EvalSymlinks(path); err == nil { // the mount reports what is wrong with it
			paths[i] = followed
		}
	}
	return strings.Join(paths, ":")
}
