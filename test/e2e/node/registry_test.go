//go:build linux

package node

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// pullImage has the node pull an image from a registry on this machine, which speaks HTTP without TLS.
func pullImage(t *testing.T, u *user) {
	folder := filepath.Join(u.home, "registry")
	writeLayout(t, folder, "v1")
	at := u.serveRegistry(t, folder)
	// Without a word about it, it is asked for a certificate.
	u.kubectl(t, "run", "pulled", "--image="+at+"/app:v1", "--restart=Never", "--", "say", "pulled")
	u.Until(t, "it cannot be pulled", func(reason string) bool { return reason == "ErrImagePull" || reason == "ImagePullBackOff" },
		"kubectl", "get", "pod", "pulled", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")
	u.kubectl(t, "delete", "pod", "pulled")

	hosts := filepath.Join(controlplane.NodeDir(u.data), "registries", at)
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte("server = \"http://"+at+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "run", "pulled", "--image="+at+"/app:v1", "--restart=Never", "--", "say", "pulled")
	u.Until(t, "it has run", transcript.Is("Succeeded"), "kubectl", "get", "pod", "pulled", "-o", "jsonpath={.status.phase}")
	if got := u.kubectl(t, "logs", "pulled"); got != "pulled\n" {
		t.Errorf("it says %q", got)
	}
	u.kubectl(t, "delete", "pod", "pulled")
	transcript.Contains(t, u.OK(t, "keelson", "image", "list", "--data-dir", u.data), at+"/app:v1 ")
}

// serveRegistry serves the one image of a layout as a registry does, until the test ends, and returns where: at the
// machine's end of the link to the node, which every machine with a node has.
func (u *user) serveRegistry(t *testing.T, folder string) (at string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Manifests []struct{ Digest, MediaType string }
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	manifest := index.Manifests[0]
	blob := func(w http.ResponseWriter, r *http.Request) {
		digest := r.PathValue("digest")
		if digest == "v1" {
			digest = manifest.Digest
		}
		if digest == manifest.Digest {
			w.Header().Set("Content-Type", manifest.MediaType)
			w.Header().Set("Docker-Content-Digest", digest)
		}
		http.ServeFile(w, r, filepath.Join(folder, "blobs", filepath.FromSlash(strings.Replace(digest, ":", "/", 1))))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/app/manifests/{digest}", blob) // and HEAD
	mux.HandleFunc("GET /v2/app/blobs/{digest}", blob)
	server := httptest.NewUnstartedServer(mux)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if server.Listener, err = net.Listen("tcp", netip.AddrPortFrom(u.nodeAddress(t).Prev(), 0).String()); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
