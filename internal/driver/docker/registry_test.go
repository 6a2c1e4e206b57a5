package docker

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// registryAddress is the address of the test registry in the engine's network. Engines use
	// plain HTTP for registries on loopback addresses.
	registryAddress = "127.0.0.1:5000"
	registryImage   = registryAddress + "/guest:1"

	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	configType   = "application/vnd.docker.container.image.v1+json"
	layerType    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// registry serves one image with the part of the distribution protocol that a pull needs.
type registry map[string]blob // by path

type blob struct {
	kind    string
	content []byte
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newRegistry returns a registry with the default guest as an image.
func newRegistry() (registry, error) {
	archive, err := os.ReadFile(filepath.Join(guestDir, guestFile))
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := gzip.NewWriter(&layer)
	if _, err := io.Copy(w, bytes.NewReader(archive)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/sh"}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(archive)}},
	})
	if err != nil {
		return nil, err
	}
	part := func(kind string, content []byte) map[string]any {
		return map[string]any{"mediaType": kind, "size": len(content), "digest": digest(content)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": part(configType, config), "layers": []any{part(layerType, layer.Bytes())},
	})
	if err != nil {
		return nil, err
	}
	const octets = "application/octet-stream"
	return registry{
		"/v2/": {"application/json", []byte("{}")},
		"/v2/guest/manifests/" + digest(manifest):  {manifestType, manifest},
		"/v2/guest/manifests/1":                    {manifestType, manifest},
		"/v2/guest/blobs/" + digest(config):        {octets, config},
		"/v2/guest/blobs/" + digest(layer.Bytes()): {octets, layer.Bytes()},
	}, nil
}

// ServeHTTP implements http.Handler.
func (r registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	found, there := r[request.URL.Path]
	if !there {
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", found.kind)
	if strings.Contains(request.URL.Path, "/manifests/") {
		w.Header().Set("Docker-Content-Digest", digest(found.content))
	}
	http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(found.content))
}

func TestImageFromARegistry(t *testing.T) {
	w := newFixture(t)
	machine := small(uid)
	machine.Image = &v1alpha1.Image{Container: registryImage}
	var reported []string
	w.do(w.driver.Create(t.Context(), machine))
	w.eventually("it is created", func(s *backend.Server) bool {
		if s != nil && s.Progress != "" {
			reported = append(reported, s.Progress)
		}
		return is(backend.StateStopped)(s)
	})
	if len(reported) == 0 || !strings.HasPrefix(reported[0], "the image is being pulled") {
		t.Errorf("progress was %q", reported)
	}
	w.start(machine)
	w.remove(backend.DeleteOptions{})
	if _, err := w.api.ImageRemove(t.Context(), registryImage, client.ImageRemoveOptions{}); err != nil {
		t.Errorf("the image was not pulled: %v", err)
	}
}
