package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// snapshotter is that of containerd for overlayfs. Where a node has it, the layers of images are shared with other nodes once they are
// unpacked. A node with another one unpacks an image when the first container needs it.
const snapshotter = "overlayfs"

// CopyFrom brings images of another node with these names into the store, without the layers that both nodes share.
func (s *Store) CopyFrom(ctx context.Context, other *Store, names []string) (err error) {
	ctx, done, err := s.client.WithLease(namespaces.WithNamespace(ctx, namespace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(ctx)) }()
	for _, name := range names {
		image, err := other.client.ImageService().Get(ctx, name)
		if err != nil {
			return fmt.Errorf("copy the image %s: %w", name, err)
		}
		handler := images.SetChildrenLabels(s.client.ContentStore(), s.copyBlobs(other.client.ContentStore()))
		if err := s.unpack(ctx, handler, image.Target); err != nil {
			return fmt.Errorf("copy the image %s: %w", name, err)
		}
		if err := s.name(ctx, image); err != nil {
			return fmt.Errorf("copy the image %s: %w", name, err)
		}
	}
	return nil
}

// name gives an image a name, which it takes from another one if necessary.
func (s *Store) name(ctx context.Context, image images.Image) error {
	named := images.Image{Name: image.Name, Target: image.Target} // labels say what the other node does with it
	_, err := s.client.ImageService().Update(ctx, named, "target")
	if errdefs.IsNotFound(err) {
		_, err = s.client.ImageService().Create(ctx, named)
	}
	return err
}

// copyBlobs returns a handler that copies content from another store.
func (s *Store) copyBlobs(from content.Provider) images.HandlerFunc {
	to := s.client.ContentStore()
	return images.FilterPlatforms(func(ctx context.Context, d ocispec.Descriptor) (_ []ocispec.Descriptor, err error) {
		if _, err := to.Info(ctx, d.Digest); err == nil {
			return images.Children(ctx, to, d)
		}
		reader, err := from.ReaderAt(ctx, d)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, reader.Close()) }()
		if err := content.WriteBlob(ctx, to, remotes.MakeRefKey(ctx, d), content.NewReader(reader), d); err != nil {
			return nil, err
		}
		return images.Children(ctx, to, d)
	}, platforms.Default())
}

// unpack unpacks an image. The handler brings content into the store: of layers only that of those that are not shared.
func (s *Store) unpack(ctx context.Context, handler images.Handler, image ocispec.Descriptor) error {
	found, err := s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+snapshotter)
	if err != nil {
		return err
	}
	if len(found.Plugins) == 0 || found.Plugins[0].InitErr != nil {
		return images.Walk(ctx, handler, image)
	}
	unpacker, err := unpack.NewUnpacker(ctx, s.client.ContentStore(), unpack.WithUnpackPlatform(unpack.Platform{
		Platform: platforms.Default(), SnapshotterKey: snapshotter,
		Snapshotter: s.client.SnapshotService(snapshotter), Applier: s.client.DiffService(),
	}))
	if err != nil {
		return err
	}
	err = images.Walk(ctx, unpacker.Unpack(handler), image)
	_, waitErr := unpacker.Wait()
	return errors.Join(err, waitErr)
}
