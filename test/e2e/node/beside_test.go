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
	other := newAccount(t)
	other.up(t)
	seen := map[string]bool{}
	for _, node := range []*user{u, other} {
		address := node.field(t, "service/kubernetes", "{.spec.clusterIP}")
		seen[address] = true
		// The API, by a certificate that nobody knows here: it refuses who does not say who he is.
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		// A connection that was begun before kube-proxy was ready leads nowhere for ever; the next one does not.
		client := http.Client{Transport: transport, Timeout: 2 * time.Second}
		transcript.Eventually(t, "the API answers at "+address, func() bool {
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
