//go:build linux

package node

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// families are Services of the Pod server of askers with IPv6.
const families = `apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  ipFamilyPolicy: RequireDualStack
  type: LoadBalancer
  selector: {app: server}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec:
  ipFamilies: [IPv6]
  selector: {app: server}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: bare}
spec:
  clusterIP: None
  ipFamilies: [IPv6]
  selector: {app: server}
  ports: [{port: 8080, targetPort: http}]
`

// TestLongIPv6 has Pods of two nodes reach each other, Services and the machine by IPv6, and NetworkPolicies hold for it.
func TestLongIPv6(t *testing.T) {
	if rootless {
		t.Skip("SKIP: IPv6 needs root")
	}
	u := newUser(t)
	if !node.Look("").IPv6 {
		t.Skip("SKIP: this machine has no IPv6, or no nft for it")
	}
	routes := routesOfIPv6(t)
	u.upWith(t, 2)
	u.loadApp(t, "v1")
	u.apply(t, askers+"---\n"+families)
	u.kubectl(t, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", transcript.WaitTimeout.String())
	for _, object := range []string{"pod/server", "pod/friend", "node/" + node.Name(0), "node/" + node.Name(1)} {
		u.hasBoth(t, object)
	}
	for _, id := range nodeIDs(t, u.data) {
		if value, err := os.ReadFile("/proc/sys/net/ipv6/conf/kn-" + id + "/accept_ra"); err != nil || string(value) != "0\n" {
			t.Errorf("this machine accepts routes from a node: %q, %v", value, err)
		}
	}
	server := u.address(t, "pod/server", "{.status.podIPs[1].ip}")
	balanced := u.Until(t, "it has two addresses", func(out string) bool { return len(strings.Fields(out)) == 2 },
		"kubectl", "get", "service", "both", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	w := dialWorld{u, []string{
		at(server, 8080), at(u.address(t, "service/both", "{.spec.clusterIPs[1]}"), 80), at(u.address(t, "service/six", "{.spec.clusterIP}"), 80),
		"six:80", "bare:8080",
	}}
	balancer := at(netip.MustParseAddr(strings.Fields(balanced)[1]), 80)
	all := []string{"friend", "near", "stranger"}
	w.dial(t, "without a policy", all, w.addresses)
	transcript.Contains(t, u.kubectl(t, "exec", "near", "--", "/app", "dial", balancer), balancer)
	for _, address := range []string{w.addresses[0], w.addresses[1], balancer} {
		transcript.Eventually(t, "this machine reaches "+address, func() bool { return u.machineDials(address) })
	}
	if got := u.kubectl(t, "exec", "friend", "--", "/app", "ask", at(server, 8080), "hello"); got != "hello\n" {
		t.Errorf("by UDP: %q", got)
	}

	u.apply(t, denyAll)
	w.dial(t, "nothing is allowed", all, nil)
	if u.machineDials(w.addresses[0]) {
		t.Error("this machine reaches the Pod")
	}
	u.apply(t, allowFriends)
	w.dial(t, "friends are allowed", []string{"friend", "near"}, w.addresses)
	w.dial(t, "friends are allowed", []string{"stranger"}, nil)
	u.apply(t, denyOut)
	w.dial(t, "nothing is allowed to friends", []string{"friend", "near"}, nil)
	u.kubectl(t, "delete", "networkpolicies", "--all")
	w.dial(t, "without a policy again", all, w.addresses)

	u.keelsonNode(t, "kill", node.Name(1))
	w.dial(t, "the node is off", []string{"friend"}, nil)
	if out := u.Run(t, "kubectl", "exec", "friend", "--", "/app", "get", "http://"+w.addresses[0]).Stdout; !strings.Contains(out, "network is unreachable") {
		t.Errorf("a Pod of a node that is off: %q", out)
	}
	u.keelsonNode(t, "start", node.Name(1))
	u.Until(t, "the server runs again", transcript.Is("1 true"), "kubectl", "get", "pod", "server", "-o",
		"jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	w.addresses[0] = at(u.address(t, "pod/server", "{.status.podIPs[1].ip}"), 8080)
	w.dial(t, "after a restart", all, w.addresses)

	u.OK(t, "keelson", "down", "--data-dir", u.data)
	u.isAsBefore(t)
	eventuallyEqual(t, "the routes are those from before", routes, func() string { return routesOfIPv6(t) })
}

// hasBoth checks that a Pod or a Node has an address of each family, IPv4 first.
func (u *user) hasBoth(t *testing.T, object string) {
	t.Helper()
	template := "{.status.podIPs[*].ip}"
	if strings.HasPrefix(object, "node/") {
		template = `{.status.addresses[?(@.type=="InternalIP")].address}`
	}
	words := strings.Fields(u.field(t, object, template))
	if len(words) != 2 || strings.Contains(words[0], ":") || !strings.HasPrefix(words[1], "fd6b:656c:") {
		t.Errorf("%s has the addresses %q", object, words)
	}
}

func (u *user) address(t *testing.T, object, template string) netip.Addr {
	t.Helper()
	address, err := netip.ParseAddr(u.field(t, object, template))
	if err != nil || !address.Is6() {
		t.Fatalf("%s of %s: %s, %v", template, object, address, err)
	}
	return address
}

func at(address netip.Addr, port uint16) string { return netip.AddrPortFrom(address, port).String() }

func (u *user) machineDials(address string) bool {
	c, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// dialWorld has the addresses that Pods dial.
type dialWorld struct {
	*user
	addresses []string
}

// dial waits until Pods reach these of the addresses and no others.
func (w dialWorld) dial(t *testing.T, what string, pods, want []string) {
	t.Helper()
	for _, pod := range pods {
		w.Until(t, fmt.Sprintf("%s: %s reaches %q", what, pod, want), func(out string) bool { return slices.Equal(strings.Fields(out), want) },
			append([]string{"kubectl", "exec", pod, "--", "/app", "dial"}, w.addresses...)...)
	}
}

// routesOfIPv6 returns the machine's routes to networks of nodes.
func routesOfIPv6(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-6", "route", "show", "table", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	var routes strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "fd6b:656c:") {
			routes.WriteString(line)
		}
	}
	return routes.String()
}
