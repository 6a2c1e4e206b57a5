package image

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// Image is one image of a store, by one of its names.
type Image struct {
	Name, Digest string
	// Size is that of what was loaded or pulled, in bytes.
	Size int64
}

// List returns the images of the store that have a name, sorted by name.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	ctx = namespaces.WithNamespace(ctx, namespace)
	found, err := s.client.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var images []Image
	for _, image := range found {
		size, err := image.Size(ctx)
		if err != nil {
			return nil, fmt.Errorf("size of image %s: %w", image.Name(), err)
		}
		images = append(images, Image{Name: image.Name(), Digest: image.Target().Digest.String(), Size: size})
	}
	return given(images), nil
}

// given returns the images without the names that containerd adds for kubelet: an image app:v1 that was pulled is also
// app@DIGEST, and every one is sha256:ID. Such a name stays where there is no better one: where an image was asked for by
// its digest, or its tag is another's now.
func given(images []Image) []Image {
	type place struct{ repository, digest string }
	tagged, named := map[place]bool{}, map[string]bool{} // the latter by digest
	for _, i := range images {
		if isID(i.Name) {
			continue
		}
		named[i.Digest] = true
		if _, isDigest := splitDigest(i.Name); !isDigest {
			tagged[place{withoutTag(i.Name), i.Digest}] = true
		}
	}
	shown := slices.DeleteFunc(slices.Clone(images), func(i Image) bool {
		if isID(i.Name) {
			return named[i.Digest]
		}
		repository, isDigest := splitDigest(i.Name)
		return isDigest && tagged[place{repository, i.Digest}]
	})
	slices.SortFunc(shown, func(a, b Image) int { return cmp.Compare(a.Name, b.Name) })
	return shown
}

// isID reports whether a name is nothing but the digest of the image's configuration.
func isID(name string) bool { return strings.HasPrefix(name, "sha256:") }

// splitDigest returns a name without the digest in it, and whether there is one.
func splitDigest(name string) (rest string, found bool) {
	rest, _, found = strings.Cut(name, "@")
	return rest, found
}

// withoutTag returns a name without its tag. A colon before a slash is that of a port.
func withoutTag(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}
