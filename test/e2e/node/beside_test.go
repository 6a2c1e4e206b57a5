//go:build linux

package node

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// beside starts another node on this machine. The machine must reach the Services of both.
func beside(t *testing.T, u *user) {
	needsLink(t)
	other := newAccount(t)
	other.up(t)
	seen := map[string]bool{}
	for _, node := range []*user{u, other} {
		address := node.field(t, "service/kubernetes", "{.spec.clusterIP}")
		seen[address] = true
		// The API has a certificate of an unknown authority, and rejects anonymous requests.
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		// A connection from before kube-proxy was ready never works; a new one does.
		client := http.Client{Transport: transport, Timeout: 2 * time.Second}
		transcript.Eventually(t, "the API responds at "+address, func() bool {
			response, err := client.Get("https://" + address + "/version")
			if err != nil {
				return false
			}
			_ = response.Body.Close()
			return response.StatusCode == http.StatusUnauthorized
		})
	}
	if len(seen) != 2 {
		t.Errorf("both have the Service kubernetes at %v", seen)
	}
}
