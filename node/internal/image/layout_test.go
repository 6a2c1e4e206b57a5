package image

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNameContents(t *testing.T) {
	full := func(name string) map[string]string { return map[string]string{fullName: name} }
	ref := func(name string) map[string]string { return map[string]string{refName: name} }
	for _, test := range []struct {
		name, asked string
		annotations []map[string]string
		want        string
	}{
		{"a whole name", "", []map[string]string{full("example.com/app:v1")}, "example.com/app:v1"},
		{"a whole name and a tag", "", []map[string]string{{fullName: "example.com/app:v1", refName: "v2"}}, "example.com/app:v1"},
		{"a whole name in the place of a tag", "", []map[string]string{ref("quay.io/team/app:v1")}, "quay.io/team/app:v1"},
		{"a short name in the place of a tag", "", []map[string]string{ref("app:v1")}, "docker.io/library/app:v1"},
		{"a tag", "", []map[string]string{ref("v1")}, "docker.io/library/folder:v1"},
		{"two tags", "", []map[string]string{ref("v1"), ref("v2")}, "docker.io/library/folder:v1 docker.io/library/folder:v2"},
		{"no name", "", []map[string]string{nil}, "docker.io/library/folder:latest"},
		{"a name that is asked for", "app:v7", []map[string]string{full("example.com/app:v1")}, "docker.io/library/app:v7"},
		{"one name for two", "app:v7", []map[string]string{ref("v1"), ref("v2")}, "error: there are 2, and --name=app:v7 is for one"},
		{"two without a name", "", []map[string]string{nil, nil}, "error: two would be called docker.io/library/folder:latest"},
		{"no image", "", nil, "error: there are none"},
		{
			"no name that an image can have", "", []map[string]string{ref("v1+build")},
			`error: the name "folder:v1+build": invalid reference format; --name gives it another one`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var images []layoutContent
			for _, annotations := range test.annotations {
				images = append(images, layoutContent{descriptor: descriptor{Annotations: maps.Clone(annotations)}})
			}
			var names []string
			err := nameContents(images, "folder", test.asked)
			for _, image := range images {
				names = append(names, image.Annotations[fullName])
			}
			got := strings.Join(names, " ")
			if err != nil {
				got = fmt.Sprintf("error: %v", err)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// layout returns a folder "hello" that is a layout of one image, whose name there is a tag.
func layout(t *testing.T) string {
	t.Helper()
	var archive bytes.Buffer
	if err := Pack(&archive, folder(t), Config{Name: "packed", Entrypoint: []string{"/app"}}); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "hello")
	for name, data := range read(t, archive.Bytes()) {
		if name == indexFile {
			index := decode[layoutIndex](t, data)
			index.Manifests[0].Annotations = map[string]string{refName: "v1"}
			data = encode(t, index)
		}
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPackLayout(t *testing.T) {
	root := layout(t)
	if err := os.WriteFile(filepath.Join(root, "README"), []byte("is no part of it"), 0o644); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := packLayout(&archive, root, ""); err != nil {
		t.Fatal(err)
	}
	files := read(t, archive.Bytes())
	index := decode[layoutIndex](t, files[indexFile])
	if got := index.Manifests[0].Annotations[fullName]; got != "docker.io/library/hello:v1" {
		t.Errorf("it is called %s", got)
	}
	if manifest := index.Manifests[0]; int64(len(files[blob(manifest.Digest)])) != manifest.Size {
		t.Errorf("the manifest %s is not in the archive", manifest.Digest)
	}
	delete(files, indexFile)
	for name, data := range files {
		if original, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(data, original) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	// The layer, the configuration, the manifest, and the file that says what it is.
	if names := slices.Sorted(maps.Keys(files)); len(names) != 4 || names[3] != layoutFile {
		t.Errorf("the archive has %q", names)
	}
}

func TestPackLayoutNeedsAWholeLayout(t *testing.T) {
	root := layout(t)
	if err := os.RemoveAll(filepath.Join(root, "blobs")); err != nil {
		t.Fatal(err)
	}
	if err := packLayout(&bytes.Buffer{}, root, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without content: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, indexFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := packLayout(&bytes.Buffer{}, root, ""); err == nil || !strings.Contains(err.Error(), indexFile) {
		t.Errorf("with a damaged table of contents: %v", err)
	}
}

func TestIsLayout(t *testing.T) {
	root := layout(t)
	if !IsLayout(root) {
		t.Error("a layout is none")
	}
	if IsLayout(folder(t)) {
		t.Error("a folder with a program is a layout")
	}
	if err := os.Remove(filepath.Join(root, layoutFile)); err != nil {
		t.Fatal(err)
	}
	if IsLayout(root) {
		t.Error("an index.json alone makes a layout")
	}
}
