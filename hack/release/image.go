package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ofX86 are the architectures of the images of the driver pod: its machines are of the type q35, which is x86.
var ofX86 = []string{"amd64"}

// images packs the images of the release.
func (r *release) images() error {
	for program, command := range map[string][]string{"keelson": {"manager"}, "keelson-kube": nil} { // as in the Dockerfiles
		err := r.image(program, architectures, func(architecture string) (v1.Image, error) {
			var files archive
			files.file(r.certs, "etc/ssl/certs/ca-certificates.crt")
			files.file(filepath.Join(r.built, architecture, program), program)
			return r.imageOf(&files, architecture, v1.Config{
				User: "65532:65532", Entrypoint: []string{"/" + program}, Cmd: command,
				Labels: map[string]string{"org.opencontainers.image.licenses": "Apache-2.0"},
			})
		})
		if err != nil {
			return err
		}
	}
	for name, config := range map[string]v1.Config{
		"launcher": {User: "1000:1000", Entrypoint: []string{"/keelson-launcher"}},
		"guest":    {}, // a volume of machines
	} {
		err := r.image("keelson-"+name, ofX86, func(architecture string) (v1.Image, error) {
			var files archive
			files.folder(filepath.Join(r.built, name, architecture), "")
			return r.imageOf(&files, architecture, config)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// image packs an OCI archive with an image for each architecture. docker load, ctr image import, podman load and skopeo can read it.
func (r *release) image(name string, architectures []string, imageOf func(architecture string) (v1.Image, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pack the image %s: %w", name, err)
		}
	}()
	// Docker does not load an index without this media type.
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		image, err := imageOf(architecture)
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
			"io.containerd.image.name":          fmt.Sprintf("docker.io/library/%s:%s", name, r.version),
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
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("%s-%s.oci.tar", name, r.version)), data, 0o644)
}

// imageOf returns an image of files, FROM scratch.
func (r *release) imageOf(files *archive, architecture string, config v1.Config) (v1.Image, error) {
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
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file.OS, file.Architecture, file.Config = "linux", architecture, config
	labels := map[string]string{"org.opencontainers.image.version": r.version}
	maps.Copy(labels, config.Labels)
	file.Config.Labels = labels
	return mutate.ConfigFile(image, file)
}
