package local_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// hostAddress returns an address of this host that others reach, or another one of loopback if it has none.
func hostAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range all {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() && !prefix.Addr().IsLinkLocalUnicast() {
			return prefix.Addr()
		}
	}
	return netip.MustParseAddr("127.0.0.2")
}

// setAddress changes spec.apiServer.address, and returns host and port of the API after that.
func (m *managed) setAddress(t *testing.T, address, want string) string {
	t.Helper()
	harness.Eventually(t, "the address is changed", func() bool {
		c := m.get(t)
		c.Spec.APIServer = &v1alpha1.APIServer{Address: address}
		return m.api.Update(t.Context(), c) == nil
	})
	harness.Eventually(t, "the API is ready at its new address", func() bool {
		c := m.get(t)
		return c.Status.ObservedGeneration == c.Generation && strings.HasPrefix(c.Status.Endpoint, "https://"+want+":") &&
			meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionProvisioned) &&
			meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
	})
	data, err := m.user().read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whoAmI(t.Context(), t, data); err != nil { // which verifies the certificate
		t.Errorf("the kubeconfig: %v", err)
	}
	access, err := kubeconfig.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if access.Server != m.get(t).Status.Endpoint {
		t.Errorf("the kubeconfig has the server %s, the status %s", access.Server, m.get(t).Status.Endpoint)
	}
	return strings.TrimPrefix(access.Server, "https://")
}

// The API of a Cluster listens at the address of its spec, and nowhere else, also after a change.
func TestLongAddress(t *testing.T) {
	t.Parallel()
	address := hostAddress(t)
	opts := newOptions(t)
	opts.Addresses = []netip.Prefix{netip.PrefixFrom(address, 32)}
	m := startManaged(t, "address-", opts)
	before := strings.TrimPrefix(m.get(t).Status.Endpoint, "https://")
	if host, _, _ := net.SplitHostPort(before); host != "127.0.0.1" {
		t.Errorf("without an address it listens on %s", host)
	}
	isRefused := func(address string) {
		t.Helper()
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			t.Errorf("something listens at %s", address)
		}
	}
	now := m.setAddress(t, address.String(), address.String())
	isRefused(before)
	if again := m.setAddress(t, "", "127.0.0.1"); again != before {
		t.Errorf("it listens at %s, and before at %s", again, before)
	}
	isRefused(now)
	m.end(t)
}
