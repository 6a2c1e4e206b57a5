package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/node/internal/image"
)

// tree makes files, with these modes, in a folder called hello.
func tree(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "hello")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, mode)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestKindOf(t *testing.T) {
	root := tree(t, map[string]os.FileMode{
		"app.tar": 0o644, "folder/app": 0o755, "layout/oci-layout": 0o644, "layout/index.json": 0o644, "web/index.json": 0o644,
	})
	for _, test := range []struct {
		source string
		want   kind
	}{
		{"-", stream},
		{filepath.Join(root, "app.tar"), archive},
		{filepath.Join(root, "folder"), folder},
		{filepath.Join(root, "web"), folder},
		{filepath.Join(root, "layout"), layout},
	} {
		if got, err := kindOf(test.source); err != nil || got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.source, got, err, test.want)
		}
	}
	if _, err := kindOf(filepath.Join(root, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
}

func TestCheck(t *testing.T) {
	named, started := image.Config{Name: "app:v1"}, image.Config{Entrypoint: []string{"/app"}}
	for _, test := range []struct {
		name   string
		config image.Config
		kind   kind
		want   string
	}{
		{"a folder gets a name", named, folder, ""},
		{"a folder gets a program to run", started, folder, ""},
		{"a layout gets a name", named, layout, ""},
		{"a layout has a program", started, layout, "--entrypoint is for a folder that becomes an image; x is an OCI image layout"},
		{"an archive has names", named, archive, "--name is for a folder; x is an archive, whose images have names"},
		{"so has a stream", named, stream, "--name is for a folder; x is standard input, whose images have names"},
		{"nothing is asked for", image.Config{}, stream, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := check(test.config, "x", test.kind); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	for _, test := range []struct {
		name       string
		files      map[string]os.FileMode
		given      image.Config
		want       string
		entrypoint []string
		fails      bool
	}{
		{"one program", map[string]os.FileMode{"app": 0o755, "README": 0o644, "bin/tar": 0o755}, image.Config{}, "docker.io/library/hello:latest", []string{"/app"}, false},
		{"a name", map[string]os.FileMode{"app": 0o755}, image.Config{Name: "example.com/app:v1"}, "example.com/app:v1", []string{"/app"}, false},
		{"two programs", map[string]os.FileMode{"app": 0o755, "tool": 0o755}, image.Config{}, "", nil, true},
		{"two programs, one is named", map[string]os.FileMode{"app": 0o755, "tool": 0o755}, image.Config{Entrypoint: []string{"/tool"}}, "docker.io/library/hello:latest", []string{"/tool"}, false},
		{"no program", map[string]os.FileMode{"README": 0o644}, image.Config{}, "", nil, true},
		{"no name for an image", map[string]os.FileMode{"app": 0o755}, image.Config{Name: "APP"}, "", nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := complete(test.given, tree(t, test.files))
			if test.fails {
				if err == nil {
					t.Errorf("it is %+v, want an error", got)
				}
				return
			}
			if err != nil || got.Name != test.want || !slices.Equal(got.Entrypoint, test.entrypoint) {
				t.Errorf("got %+v, %v, want %s %q", got, err, test.want, test.entrypoint)
			}
		})
	}
}
