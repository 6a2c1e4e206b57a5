package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// read returns the files of an archive by their names.
func read(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = data
	}
}

func decode[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// folder returns a folder with a program, a link and a folder with a file.
func folder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "app"), []byte("program"), 0o755),
		os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc", "app.conf"), []byte("color=blue"), 0o640),
		os.Symlink("app", filepath.Join(root, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPack(t *testing.T) {
	root := folder(t)
	var archive bytes.Buffer
	if err := Pack(&archive, root, Config{Name: "example.com/app:v1", Entrypoint: []string{"/app"}, Env: []string{"A=b"}}); err != nil {
		t.Fatal(err)
	}
	files := read(t, archive.Bytes())
	index := decode[struct{ Manifests []descriptor }](t, files["index.json"])
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "example.com/app:v1" {
		t.Errorf("name %q", got)
	}
	manifest := decode[struct {
		Config descriptor
		Layers []descriptor
	}](t, files[blob(index.Manifests[0].Digest)])
	config := decode[struct {
		Config struct{ Entrypoint, Env []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}](t, files[blob(manifest.Config.Digest)])
	if config.Config.Entrypoint[0] != "/app" || config.Config.Env[0] != "A=b" || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("configuration %+v", config)
	}
	layer := files[blob(manifest.Layers[0].Digest)]
	if int64(len(layer)) != manifest.Layers[0].Size {
		t.Errorf("the layer has %d bytes and says %d", len(layer), manifest.Layers[0].Size)
	}
	content := read(t, layer)
	if string(content["app"]) != "program" || string(content["etc/app.conf"]) != "color=blue" {
		t.Errorf("content %q", content)
	}
	for _, name := range []string{"etc/", "link"} {
		if _, ok := content[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// The same files make the same image, whenever they were written, and by a link to their folder, too.
func TestPackIsRepeatable(t *testing.T) {
	var archives [2]bytes.Buffer
	for i := range archives {
		root := folder(t)
		then := time.Unix(int64(1e9+i), 0)
		if err := os.Chtimes(filepath.Join(root, "app"), then, then); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(root, link); err != nil {
				t.Fatal(err)
			}
			root = link
		}
		if err := Pack(&archives[i], root, Config{Name: "app:v1"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := decode[any](t, read(t, archives[1].Bytes())["index.json"]), decode[any](t, read(t, archives[0].Bytes())["index.json"]); !equal(t, got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func equal(t *testing.T, a, b any) bool {
	t.Helper()
	return bytes.Equal(encode(t, a), encode(t, b))
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPackRefusesWhatNoImageCanHave(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Pack(io.Discard, root, Config{Name: "app:v1"}); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("got %v", err)
	}
}
