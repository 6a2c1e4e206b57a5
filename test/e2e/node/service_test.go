//go:build linux

package node

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const servedMachine = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: guest}
spec:
  resource: {memory: 256Mi}
  service: true
  ports: [{name: http, port: 80}]
  readinessProbe: {httpGet: {port: 80}}
  cloudInit:
    userData: |
      #cloud-config
      bootcmd: [[sh, -c, 'mkdir /srv; echo from the guest > /srv/index.html; busybox httpd -h /srv']]
`

// TestLongPodsReachMachines has Pods reach the guest of a machine by the name of its Service, as long as the machine is ready.
func TestLongPodsReachMachines(t *testing.T) {
	if rootless {
		t.Skip("SKIP: without root the machine has no link to the node")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	if _, err := env.Binary("guest/guest.json"); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
	u := newUser(t)
	transcript.Contains(t, u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=qemu", "--data-dir", u.data), "Its node is this host")
	u.loadApp(t, "v1")
	u.kubectl(t, "run", "web", "--image=app:v1")
	u.apply(t, servedMachine)
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

	// Through a restart of the machine, no Pod is led to something else.
	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"action":"stopped"}}`)
	u.Until(t, "a machine that is off has no endpoint", transcript.Is(""), "kubectl", "get", "endpointslice/guest", "-o", "jsonpath={.endpoints[*].addresses}")
	if got := u.Run(t, "kubectl", "exec", "web", "--", "/app", "get", "http://guest"); answersOK(got.Stdout) {
		t.Errorf("a machine that is off answers %q", got.Stdout)
	}
	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"action":"active"}}`)
	u.kubectl(t, "wait", "--for=condition=ServiceReady", "vm/guest", "--timeout=5m")
	u.Until(t, "the guest answers again", answersOK, "kubectl", "exec", "web", "--", "/app", "get", "http://guest")

	u.kubectl(t, "patch", "vm/guest", "--type=merge", "-p", `{"spec":{"service":false}}`)
	u.kubectl(t, "wait", "--for=delete", "service/guest", "endpointslice/guest", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "delete", "vm/guest")
}
