//go:build linux

package node

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const servedMachine = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: guest}
spec:
  resource: {memory: 256Mi}
  service: {}
  ports: [{name: http, port: 80}]
  readinessProbe: {httpGet: {port: 80}}
  cloudInit:
    userData: |
      #cloud-config
      bootcmd: [[sh, -c, 'mkdir /srv; echo from the guest > /srv/index.html; busybox httpd -h /srv']]
`

// strangeMachine is a machine of another namespace whose guest executes commands at a published port.
const strangeMachine = `apiVersion: v1
kind: Namespace
metadata: {name: others}
---
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: stranger, namespace: others}
spec:
  resource: {memory: 256Mi}
  ports: [{name: commands, port: 7}]
  readinessProbe: {tcpSocket: {port: 7}}
  cloudInit:
    userData: |
      #cloud-config
      bootcmd: [[sh, -c, 'nc -ll -p 7 -e sh > /dev/null 2>&1 &']]
`

// TestLongPodsReachMachines has Pods reach the guest of a machine by the name of its Service, as long as the machine is ready.
func TestLongPodsReachMachines(t *testing.T) {
	needsMachines(t)
	u := newUser(t)
	transcript.Contains(t, u.OK(t, upWithMachines(u)...), "Its node is this host")
	podsReachMachines(t, u)
}

// TestLongPodsReachMachinesWithoutIptables is the same where the rules of the node are those of nft.
func TestLongPodsReachMachinesWithoutIptables(t *testing.T) {
	needsMachines(t)
	if len(places([]string{"nft"})) == 0 {
		t.Skip("SKIP: this machine has no nft: `hack/require.sh nft` installs it")
	}
	u := newUser(t)
	u.without = []string{"iptables"}
	transcript.Contains(t, u.okWithout(t, upWithMachines(u)), "Its node is this host")
	hasNft(t, u)
	podsReachMachines(t, u)
}

// needsMachines skips a test where Pods cannot reach machines, or there is no QEMU.
func needsMachines(t *testing.T) {
	t.Helper()
	if rootless {
		t.Skip("SKIP: without root the machine has no link to the node")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	if _, err := env.Binary("guest/guest.json"); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
}

func upWithMachines(u *user) []string {
	return []string{"keelson", "up", "--detach", "--node=real", "--vm-driver=qemu", "--data-dir", u.data}
}

func podsReachMachines(t *testing.T, u *user) {
	u.loadApp(t, "v1")
	u.kubectl(t, "run", "web", "--image=app:v1")
	u.apply(t, servedMachine+"---\n"+strangeMachine)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/web", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "wait", "--for=condition=ServiceReady", "vm/guest", "--timeout=5m")

	host := u.nodeAddress(t).Prev().String()
	if got := u.field(t, "endpointslice/guest", "{.endpoints[*].addresses[*]}"); got != host {
		t.Errorf("the endpoint is %q, want %s", got, host)
	}
	for _, name := range []string{"guest", "guest.default", "guest.default.svc.cluster.local.", u.field(t, "service/guest", "{.spec.clusterIP}")} {
		u.Until(t, "the guest answers at "+name, transcript.Is("200 OK\nfrom the guest"), "kubectl", "exec", "web", "--", "/app", "get", "http://"+name)
	}
	// The listener has the number of the published port, which the host reaches on loopback.
	published, err := netip.ParseAddrPort(u.field(t, "vm/guest", "{.status.server.endpoints[0].address}"))
	if err != nil || !published.Addr().IsLoopback() {
		t.Errorf("published at %s, %v", published, err)
	}

	strangerIsRefused(t, u, net.JoinHostPort(host, u.field(t, "endpointslice/guest", "{.ports[*].port}")))

	// Through a restart of the machine, no Pod is led to something else.
	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"action":"stopped"}}`)
	u.Until(t, "a machine that is off has no endpoint", transcript.Is(""), "kubectl", "get", "endpointslice/guest", "-o", "jsonpath={.endpoints[*].addresses}")
	if got := u.Run(t, "kubectl", "exec", "web", "--", "/app", "get", "http://guest"); answersOK(got.Stdout) {
		t.Errorf("a machine that is off answers %q", got.Stdout)
	}
	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"action":"active"}}`)
	u.kubectl(t, "wait", "--for=condition=ServiceReady", "vm/guest", "--timeout=5m")
	u.Until(t, "the guest answers again", answersOK, "kubectl", "exec", "web", "--", "/app", "get", "http://guest")

	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"service":null}}`)
	u.kubectl(t, "wait", "--for=delete", "service/guest", "endpointslice/guest", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "delete", "vm/guest")
	u.kubectl(t, "delete", "namespace/others")
}

// strangerIsRefused checks that a guest of another namespace does not reach the listener for Pods at the host's end of its link to
// the node, which Pods reach.
func strangerIsRefused(t *testing.T, u *user, listener string) {
	t.Helper()
	if got := u.kubectl(t, "exec", "web", "--", "/app", "get", "http://"+listener); !answersOK(got) {
		t.Errorf("Pods get %q at %s", got, listener)
	}
	u.kubectl(t, "wait", "--namespace=others", "--for=condition=Ready", "vm/stranger", "--timeout=5m")
	commands := u.kubectl(t, "get", "--namespace=others", "vm/stranger", "-o", "jsonpath={.status.server.endpoints[0].address}")
	conn, err := net.Dial("tcp", commands)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "exec 2>&1; timeout 20 wget -q -O - http://%s/; echo ended\nexit\n", listener); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(conn)
	t.Logf("a guest of another namespace gets %q", out)
	if err != nil || !strings.Contains(string(out), "Connection refused") || !strings.HasSuffix(string(out), "ended\n") {
		t.Errorf("at %s, a guest of another namespace gets %q, %v; want that it is refused", listener, out, err)
	}
}
