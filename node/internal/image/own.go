package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// pinned is the label of images that kubelet does not delete to free space. containerd's CRI plugin reads it.
const (
	pinned = "io.cri-containerd.pinned"
	yes    = "pinned"
)

// LoadOwn loads an image of Keelson itself from a folder, unless the store has it. Its tag is that of its version: kubelet may delete other
// versions once no container uses them.
func (s *Store) LoadOwn(ctx context.Context, root string, c Config) ([]string, error) {
	ctx = namespaces.WithNamespace(ctx, namespace)
	store := s.client.ImageService()
	_, err := store.Get(ctx, c.Name)
	if errdefs.IsNotFound(err) {
		_, err = s.LoadFolder(ctx, root, c)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", c.Name, err)
	}
	all, err := store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var errs []error
	for _, image := range all {
		if withoutTag(image.Name) == withoutTag(c.Name) {
			errs = append(errs, pin(ctx, store, image, image.Name == c.Name))
		}
	}
	return []string{c.Name}, errors.Join(errs...)
}

// pin sets whether an image is pinned.
func pin(ctx context.Context, store images.Store, image images.Image, wanted bool) error {
	if (image.Labels[pinned] == yes) == wanted {
		return nil
	}
	image.Labels = map[string]string{pinned: ""} // an empty value removes the label
	if wanted {
		image.Labels[pinned] = yes
	}
	if _, err := store.Update(ctx, image, "labels."+pinned); err != nil {
		return fmt.Errorf("pin the image %s: %w", image.Name, err)
	}
	return nil
}
