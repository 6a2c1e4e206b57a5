package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// networkedMachine is a machine whose guest executes commands at port 7, which is published, and has a page with its name.
func networkedMachine(namespace, name string) string {
	return fmt.Sprintf(`apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  resource: {memory: 256Mi}
  cloudInit:
    userData: |
      #cloud-config
      bootcmd: [[sh, -c, 'mkdir /srv; echo %[2]s > /srv/index.html; busybox httpd -h /srv; nc -ll -p 7 -e sh > /dev/null 2>&1 &']]
  ports: [{name: commands, port: 7}]
  readinessProbe: {tcpSocket: {port: 7}}
`, namespace, name)
}

// inGuest executes a command at the published port of a machine and returns its output.
func inGuest(t *testing.T, endpoint, command string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", endpoint, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "exec 2>&1; %s\nexit\n", command); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(string(out))
}

// Machines of a namespace talk to each other by name; others, and the host, are out of reach. Ports come and go while the
// machine runs.
func TestLongNetworksOfVirtualMachines(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	other := s.namespace + "-b"
	s.OK(t, "kubectl", "create", "namespace", other)
	t.Cleanup(func() { s.OK(t, "kubectl", "delete", "namespace", other, "--wait=false") })
	s.Stdin = networkedMachine(s.namespace, "web") + "---\n" + networkedMachine(s.namespace, "client") + "---\n" + networkedMachine(other, "stranger")
	s.OK(t, "kubectl", "apply", "-f", "-")
	s.Stdin = ""

	// The address is there before the guest is, and stays.
	s.until(t, "it has an address", func(address string) bool { return address != "" }, "get", "vm/web", "-o", "jsonpath={.status.server.addresses[0]}")
	address := s.field(t, "vm/web", "{.status.server.addresses[0]}")
	s.wait(t, "condition=Ready", "vm/web")
	s.wait(t, "condition=Ready", "vm/client")
	s.OK(t, "kubectl", "wait", "--namespace", other, "--for=condition=Ready", "vm/stranger", "--timeout=3m")
	if wide := s.kubectl(t, "get", "vm/web", "-o", "wide"); s.field(t, "vm/web", "{.status.server.addresses}") != fmt.Sprintf("[%q]", address) || !strings.Contains(wide, address) {
		t.Errorf("the address was %s, and now kubectl shows %s", address, wide)
	}
	client := s.field(t, "vm/client", "{.status.server.endpoints[0].address}")
	stranger := s.OK(t, "kubectl", "get", "vm/stranger", "--namespace", other, "-o", "jsonpath={.status.server.endpoints[0].address}")
	for _, name := range []string{"web", "web." + s.namespace, address} {
		if got := inGuest(t, client, "wget -q -O - http://"+name+"/"); got != "web" {
			t.Errorf("a neighbour reaches %s: %q", name, got)
		}
		if got := inGuest(t, stranger, "timeout 5 wget -q -O - http://"+name+"/"); got == "web" {
			t.Errorf("a machine of another namespace reaches %s", name)
		}
	}

	guestsDoNotReach(t, client)

	// A port is published and withdrawn in the same run.
	run := s.field(t, "vm/web", "{.status.server.run}")
	s.kubectl(t, "patch", "vm/web", "--type", "merge", "-p", `{"spec":{"ports":[{"name":"commands","port":7},{"name":"http","port":80}]}}`)
	const published = `jsonpath={.status.server.endpoints[?(@.name=="http")].address}`
	s.until(t, "the port is published", func(address string) bool { return address != "" }, "get", "vm/web", "-o", published)
	endpoint := s.kubectl(t, "get", "vm/web", "-o", published)
	response, err := http.Get("http://" + endpoint)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || strings.TrimSpace(string(page)) != "web" {
		t.Errorf("the published port answers %q, %v", page, err)
	}
	s.kubectl(t, "patch", "vm/web", "--type", "merge", "-p", `{"spec":{"ports":[{"name":"commands","port":7}]}}`)
	harness.Eventually(t, "the port is withdrawn", func() bool {
		conn, err := net.Dial("tcp", endpoint)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if again := s.field(t, "vm/web", "{.status.server.run}"); again != run {
		t.Errorf("the machine was restarted for its ports: the run changed from %s to %s", run, again)
	}
	s.untilField(t, "vm/web", `{.status.conditions[?(@.type=="RestartRequired")].status}`, "False")
}

// guestsDoNotReach checks that a guest reaches no listener on its host, whatever address it uses.
func guestsDoNotReach(t *testing.T, guest string) {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	visited := make(chan string, 64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			visited <- conn.LocalAddr().String()
			_ = conn.Close()
		}
	}()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{"127.0.0.1", "10.0.2.2", "$(ip route | awk '/default/{print $3}')", "169.254.169.254", host}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			targets = append(targets, network.IP.String())
		}
	}
	port := listener.Addr().(*net.TCPAddr).Port
	for _, target := range targets {
		inGuest(t, guest, fmt.Sprintf("nc -w 2 %s %d < /dev/null", target, port))
	}
	select {
	case address := <-visited:
		t.Errorf("a guest has reached the host at %s", address)
	default:
	}
}
