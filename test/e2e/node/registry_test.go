//go:build linux

package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// pullImage has the node pull an image from registries on this machine: one with its own authority,
// and one with plain HTTP.
func pullImage(t *testing.T, u *user) {
	folder := filepath.Join(u.home, "registry")
	writeLayout(t, folder, "v1")
	secure, authority := u.serveRegistry(t, folder, true)
	plain, _ := u.serveRegistry(t, folder, false)

	// Without configuration, its authority is unknown.
	u.kubectl(t, "run", "secure", "--image="+secure+"/app:v1", "--restart=Never", "--", "say", "pulled")
	u.Until(t, "the pull fails with the reason", func(why string) bool { return strings.Contains(why, "certificate signed by unknown authority") },
		"kubectl", "get", "events", "--field-selector=involvedObject.name=secure,reason=Failed", "-o", "jsonpath={.items[*].message}")
	u.kubectl(t, "delete", "pod", "secure")

	u.describeRegistry(t, secure, fmt.Sprintf("server = \"https://%s\"\nca = \"ca.crt\"\n", secure), authority)
	u.describeRegistry(t, plain, fmt.Sprintf("server = \"http://%s\"\n", plain), nil)
	registries := map[string]string{"secure": secure, "plain": plain}
	for pod, at := range registries {
		u.kubectl(t, "run", pod, "--image="+at+"/app:v1", "--restart=Never", "--", "say", "pulled")
	}
	for pod := range registries {
		u.Until(t, "it has run", transcript.Is("Succeeded"), "kubectl", "get", "pod", pod, "-o", "jsonpath={.status.phase}")
		if got := u.kubectl(t, "logs", pod); got != "pulled\n" {
			t.Errorf("output is %q", got)
		}
		u.kubectl(t, "delete", "pod", pod)
	}
	list := u.OK(t, "keelson", "node", "image", "list", "--data-dir", u.data)
	for _, at := range registries {
		transcript.Contains(t, list, at+"/app:v1 ")
		if count := strings.Count(list, at); count != 1 {
			t.Errorf("the image from %s is listed %d times", at, count)
		}
	}
}

// describeRegistry configures a registry on the node, with the authority of its certificate, if
// there is one.
func (u *user) describeRegistry(t *testing.T, at, hosts string, authority []byte) {
	t.Helper()
	u.describeRegistryTo(t, 0, at, hosts, authority)
}

// describeRegistryTo does so on the node with an index.
func (u *user) describeRegistryTo(t *testing.T, index int, at, hosts string, authority []byte) {
	t.Helper()
	folder := filepath.Join(node.Dir(u.data, index), "registries", at)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"hosts.toml": []byte(hosts), "ca.crt": authority} {
		if data == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serveRegistry serves the image of a layout until the end of the test, and returns the address:
// the machine's end of the link to the node, which every machine with a node has. A secure registry
// has a certificate of the returned authority.
func (u *user) serveRegistry(t *testing.T, folder string, secure bool) (at string, authority []byte) {
	t.Helper()
	return u.serve(t, registryOf(t, folder), secure)
}

func (u *user) serve(t *testing.T, registry http.Handler, secure bool) (at string, authority []byte) {
	t.Helper()
	address := u.nodeAddress(t).Prev()
	if rootless {
		address = u.otherAddress(t)
	}
	server := httptest.NewUnstartedServer(registry)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients without the authority
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if server.Listener, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if !secure {
		server.Start()
		return server.Listener.Addr().String(), nil
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(address.String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		t.Fatal(err)
	}
	if authority, err = cert.EncodeCertificates(certificates[len(certificates)-1]); err != nil {
		t.Fatal(err)
	}
	return server.Listener.Addr().String(), authority
}

// registryOf returns the handler of a registry with the image of a layout.
func registryOf(t *testing.T, folder string) http.Handler {
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
	return mux
}
