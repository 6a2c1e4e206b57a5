package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
)

// The files at the top of a folder by which the OCI image layout is known, and the annotations with names of images.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"

	fullName = "io.containerd.image.name"          // always a whole one
	refName  = "org.opencontainers.image.ref.name" // a whole one, or a tag alone
)

// layoutIndex is the table of contents of a layout.
type layoutIndex struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType,omitempty"`
	Manifests     []layoutContent `json:"manifests"`
}

// layoutContent is one image of a layout.
type layoutContent struct {
	descriptor
	Platform json.RawMessage `json:"platform,omitempty"`
}

// IsLayout reports whether a folder is an OCI image layout, with images that another tool has written.
func IsLayout(root string) bool {
	for _, name := range []string{layoutFile, indexFile} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// LoadLayout brings the images of an OCI image layout into the store, and returns their names. A name, if it is not empty,
// is that of the only image in it. Without one, an image has the name that the layout gives it; where that is a tag alone,
// or nothing, its repository is called as the folder.
func (s *Store) LoadLayout(ctx context.Context, root, name string) ([]string, error) {
	return s.loadPacked(ctx, func(w io.Writer) error { return packLayout(w, root, name) })
}

// packLayout writes a layout as an archive in which every image has a whole name.
func packLayout(w io.Writer, root, name string) error {
	path, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(root, indexFile))
	if err != nil {
		return err
	}
	var index layoutIndex
	if err := json.Unmarshal(data, &index); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(root, indexFile), err)
	}
	if err := nameContents(index.Manifests, filepath.Base(path), name); err != nil {
		return fmt.Errorf("the images of %s: %w", root, err)
	}
	if data, err = json.Marshal(index); err != nil {
		return err
	}
	out := tar.NewWriter(w)
	if err := writeFile(out, indexFile, int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	if err := copyFile(out, root, layoutFile); err != nil {
		return err
	}
	err = filepath.WalkDir(filepath.Join(root, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return copyFile(out, root, name)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", root, err)
	}
	return out.Close()
}

// copyFile writes a file of a folder into an archive.
func copyFile(out *tar.Writer, root, name string) error {
	file, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return writeFile(out, filepath.ToSlash(name), info.Size(), file)
}

// nameContents gives every image of a layout in this folder the name that kubelet will ask for.
func nameContents(images []layoutContent, folder, name string) error {
	switch {
	case len(images) == 0:
		return errors.New("there are none")
	case len(images) > 1 && name != "":
		return fmt.Errorf("there are %d, and --name=%s is for one", len(images), name)
	}
	used := map[string]bool{}
	for i := range images {
		whole, err := wholeName(images[i].Annotations, folder, name)
		if err != nil {
			return err
		}
		if used[whole] {
			return fmt.Errorf("two would be called %s", whole)
		}
		used[whole] = true
		if images[i].Annotations == nil {
			images[i].Annotations = map[string]string{}
		}
		images[i].Annotations[fullName] = whole
	}
	return nil
}

// wholeName returns the name of one image of a layout.
func wholeName(annotations map[string]string, folder, name string) (string, error) {
	ref := annotations[refName]
	switch {
	case name != "":
	case annotations[fullName] != "":
		name = annotations[fullName]
	case strings.ContainsAny(ref, ":/"):
		name = ref
	case ref != "":
		name = folder + ":" + ref
	default:
		name = folder
	}
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("the name %q: %w; --name gives it another one", name, err)
	}
	return named.String(), nil
}
