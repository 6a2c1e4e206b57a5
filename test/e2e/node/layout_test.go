//go:build linux

package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// loadLayout loads a folder with an image that another tool has written, as an OCI image layout.
func loadLayout(t *testing.T, u *user) {
	folder := filepath.Join(u.home, "laid")
	writeLayout(t, folder, "v3")
	transcript.Contains(t, u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, folder), "docker.io/library/laid:v3\n")
	transcript.Contains(t, u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, "--name", "named:v1", folder), "docker.io/library/named:v1\n")
	for _, image := range []string{"laid:v3", "named:v1"} {
		u.kubectl(t, "run", "laid", "--image="+image, "--restart=Never", "--", "say", "from", image)
		u.Until(t, "it has run", transcript.Is("Succeeded"), "kubectl", "get", "pod", "laid", "-o", "jsonpath={.status.phase}")
		if got := u.kubectl(t, "logs", "laid"); got != "from "+image+"\n" {
			t.Errorf("output is %q", got)
		}
		u.kubectl(t, "delete", "pod", "laid")
	}
	transcript.Contains(t, u.Fails(t, 1, "keelson", "node", "image", "load", "--data-dir", u.data, "--entrypoint", "/app", folder),
		"--entrypoint is for a folder that becomes an image")
	elsewhere := transcript.Shell{Env: maps.Clone(u.Env)}
	elsewhere.Env["KEELSON_NODE"] = "/nowhere"
	transcript.Contains(t, elsewhere.Fails(t, 1, "keelson", "node", "image", "list", "--data-dir", u.data),
		"the program of the real node is missing: /nowhere/keelson-node (build it with `make node`)")
}

// writeLayout writes a layout with one image of the program app, named only by a tag.
func writeLayout(t *testing.T, folder, tag string) {
	t.Helper()
	type object = map[string]any
	write := func(name string, data []byte) {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(value any) []byte {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	blob := func(mediaType string, data []byte) object {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		write(filepath.Join("blobs", "sha256", digest), data)
		return object{"mediaType": "application/vnd.oci.image." + mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	layer := blob("layer.v1.tar", appLayer(t))
	manifest := blob("manifest.v1+json", encode(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("config.v1+json", encode(object{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": object{"Entrypoint": []string{"/app"}},
			"rootfs": object{"type": "layers", "diff_ids": []any{layer["digest"]}},
		})),
		"layers": []any{layer},
	}))
	manifest["annotations"] = object{"org.opencontainers.image.ref.name": tag}
	write("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	write("index.json", encode(object{"schemaVersion": 2, "manifests": []any{manifest}}))
}

// appLayer returns a layer with the program app.
func appLayer(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	buildApp(t, folder, "laid")
	program, err := os.ReadFile(filepath.Join(folder, "app"))
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	if err := out.WriteHeader(&tar.Header{Name: "app", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}
