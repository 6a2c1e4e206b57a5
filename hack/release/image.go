package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// commands are the default arguments of the programs that have an image, as in the Dockerfiles.
var commands = map[string][]string{"keelson": {"manager"}, "keelson-kube": nil}

// image packs an OCI archive with the images of one program for all architectures. docker load, ctr
// image import, podman load and skopeo can read it.
func (r *release) image(program string) error {
	// Docker does not load an index without this media type.
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		image, err := r.imageOf(program, architecture)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	// The archive's own index has one entry: the index of the images, with its names.
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": r.version,
			"io.containerd.image.name":          fmt.Sprintf("docker.io/library/%s:%s", program, r.version),
		}},
	})
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if _, err := layout.Write(work, named); err != nil {
		return err
	}
	var a archive
	a.folder(work, "")
	data, err := a.tar()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("%s-%s.oci.tar", program, r.version)), data, 0o644)
}

// imageOf returns the image of one architecture: the program and the certificates, FROM scratch.
func (r *release) imageOf(program, architecture string) (v1.Image, error) {
	var files archive
	files.file(r.certs, "etc/ssl/certs/ca-certificates.crt")
	files.file(filepath.Join(r.built, architecture, program), program)
	data, err := files.tar()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = "linux", architecture
	config.Config.User = "65532:65532"
	config.Config.Entrypoint = []string{"/" + program}
	config.Config.Cmd = commands[program]
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(image, config)
}
