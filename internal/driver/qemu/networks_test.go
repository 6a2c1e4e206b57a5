package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

const (
	// shellPort is a port at which guests of these tests execute commands, pagePort one with a page that is the name of
	// the machine.
	shellPort = 7
	pagePort  = 80
)

// named returns a machine with the default guest and these services.
func named(namespace, name string, changes ...func(*backend.Machine)) backend.Machine {
	machine := booted(changes...)
	machine.Identity = backend.Identity{UID: uuid.NewUUID(), Namespace: namespace, Name: name, Cluster: "cluster"}
	machine.Seed = &backend.Seed{UserData: "#cloud-config\nhostname: " + name + "\nbootcmd:\n" +
		"- [sh, -c, 'mkdir /srv; echo " + name + " > /srv/index.html; busybox httpd -h /srv; nc -ll -p 7 -e sh > /dev/null 2>&1 &']\n"}
	return machine
}

// guest is a machine of a test.
type testGuest struct {
	*fixture
	machine backend.Machine
}

// boot starts machines, which are removed at the end of the test, and waits until their guests execute commands.
func (w *fixture) boot(machines ...backend.Machine) []*testGuest {
	w.Helper()
	var guests []*testGuest
	for _, machine := range machines {
		w.create(machine)
		w.do(w.driver.Start(w.Context(), machine))
		guests = append(guests, &testGuest{w, machine})
	}
	for _, g := range guests {
		harness.Eventually(w, g.machine.Name+" executes commands", func() bool {
			out, err := g.try("echo $((40+2))")
			return err == nil && out == "42"
		})
	}
	return guests
}

func (g *testGuest) server() backend.Server {
	server, _ := g.driver.Observe(g.Context(), g.machine.Identity) // the zero value is no state
	return server
}

func (g *testGuest) address() string {
	g.Helper()
	addresses := g.server().Addresses
	if len(addresses) == 0 {
		g.Fatalf("machine %s has no address", g.machine.Name)
	}
	return addresses[0]
}

// try executes a command in the guest and returns its output, with its errors. It may be repeated soon.
func (g *testGuest) try(command string) (string, error) {
	return g.execWithin(5*time.Second, command)
}

// execWithin executes a command in the guest. The time is for the connection, and again for the command, which has 20 seconds at least.
func (g *testGuest) execWithin(timeout time.Duration, command string) (string, error) {
	ctx, cancel := context.WithTimeout(g.Context(), timeout)
	defer cancel()
	conn, err := g.driver.Dial(ctx, g.machine.Identity, shellPort)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(max(timeout, 20*time.Second))); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "exec 2>&1; %s\nexit\n", command); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return strings.TrimSpace(string(out)), err
}

// exec executes a command in the guest.
func (g *testGuest) exec(command string) string {
	g.Helper()
	out, err := g.execWithin(harness.WaitTimeout, command)
	if err != nil {
		g.Fatalf("machine %s: %s: %v", g.machine.Name, command, err)
	}
	return out
}

// fetch returns the page at an address, as the guest sees it, or an error in words.
func (g *testGuest) fetch(address string) string {
	g.Helper()
	return g.exec("timeout 5 wget -q -O - http://" + address + "/")
}

// gets waits until the guest sees a page at an address.
func (g *testGuest) gets(page, address string) {
	g.Helper()
	harness.Eventually(g, g.machine.Name+" reaches "+address, func() bool { return g.fetch(address) == page })
}

func (g *testGuest) remove() {
	g.Helper()
	harness.Eventually(g, g.machine.Name+" is deleted", func() bool {
		err := g.driver.Delete(g.Context(), g.machine.Identity, backend.DeleteOptions{})
		g.do(err)
		return err == nil
	})
}

// networkPID returns the process of the network of a namespace; 0 if it does not run.
func (w *fixture) networkPID(namespace string) int {
	w.Helper()
	statuses, err := process.Peek(filepath.Join(w.options.StateDir, "processes"))
	w.do(err)
	for _, status := range statuses {
		if status.ID == networkProcess+namespace && status.State == process.Running {
			return status.PID
		}
	}
	return 0
}

func (w *fixture) expectClean() {
	w.Helper()
	if left := w.leftovers(w.T); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
}

// Machines of a namespace reach each other by address and by name, those of other namespaces only if both allow it.
func TestLongNamespacesHaveSeparateNetworks(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	guests := w.boot(named("default", "one"), named("default", "two"), named("other", "three"))
	one, two, three := guests[0], guests[1], guests[2]
	for _, name := range []string{two.address(), "two", "two.default", "two.default.vm.internal"} {
		one.gets("two", name)
	}
	for _, name := range []string{three.address(), "three", "three.other", "three.other.vm.internal"} {
		if got := one.fetch(name); strings.Contains(got, "three\n") || got == "three" {
			t.Errorf("one reaches %s of another namespace: %q", name, got)
		}
	}
	allow := func(g *testGuest, namespace string) {
		t.Helper()
		g.machine.Hash += "+"
		g.machine.Network = &v1alpha1.Network{AllowFrom: []v1alpha1.NetworkPeer{{Namespace: namespace}}}
		w.do(w.driver.Reconfigure(t.Context(), g.machine))
	}
	allow(one, "other")
	if got := one.fetch(three.address()); got == "three" {
		t.Errorf("the consent of one machine is enough: %q", got)
	}
	allow(three, "default")
	one.gets("three", three.address()) // when both allow it
	three.gets("one", one.address())
	if got := two.fetch(three.address()); got == "three" {
		t.Errorf("a neighbour reaches three, too: %q", got)
	}

	one.machine.Hash += "+"
	one.machine.Network = &v1alpha1.Network{Mode: v1alpha1.NetworkIsolated}
	w.do(w.driver.Reconfigure(t.Context(), one.machine))
	for _, other := range []*testGuest{two, three} {
		if got := one.fetch(other.address()); got == other.machine.Name {
			t.Errorf("an isolated machine reaches %s", got)
		}
		if got := other.fetch(one.address()); got == "one" {
			t.Errorf("%s reaches an isolated machine", other.machine.Name)
		}
	}
	for _, g := range guests {
		g.remove()
	}
	w.expectClean()
}

// A guest does not reach its host, whatever address it uses.
func TestLongGuestsDoNotReachTheirHost(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	w.options.Egress.Networks = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} // even then
	w.options.ServiceAddress = hostAddress(t)
	w.open()
	visits := make(chan string, 100)
	listener, err := net.Listen("tcp", ":0") // at every address of the host
	w.do(err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			visits <- conn.RemoteAddr().String()
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	w.do(err)
	guests := w.boot(named("default", "one", func(m *backend.Machine) {
		m.Ports = []v1alpha1.Port{{Name: "page", Port: pagePort, Protocol: v1alpha1.ProtocolTCP}}
		m.Service = true
	}), named("default", "two"))
	g, other := guests[0], guests[1]
	// visit is what the guest tries, and reaches another guest with.
	visit := func(target, port string) { g.exec(fmt.Sprintf("nc -w 2 %s %s < /dev/null", target, port)) }
	other.exec("(nc -l -p 9999 > /dev/null; touch /run/visited) < /dev/null > /dev/null 2>&1 &")
	harness.Eventually(t, "the guest reaches another one", func() bool {
		visit(other.address(), "9999")
		return other.exec("ls /run/visited") == "/run/visited"
	})
	targets := []string{"127.0.0.1", "10.0.2.2", gateway(netip.MustParsePrefix(g.address() + "/22").Masked()).String(), "169.254.169.254", "0.0.0.0", "localhost"}
	interfaces, err := net.InterfaceAddrs()
	w.do(err)
	for _, address := range interfaces {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil {
			targets = append(targets, network.IP.String())
			// The host itself reaches the listener there.
			conn, err := net.Dial("tcp", net.JoinHostPort(network.IP.String(), port))
			w.do(err)
			<-visits
			w.do(conn.Close())
		}
	}
	for _, target := range targets {
		visit(target, port)
	}
	// Nor does it reach the ports of machines at the host.
	published := netip.MustParseAddrPort(g.server().Endpoints[0].Address)
	if got, err := page(published.String()); err != nil || !strings.HasSuffix(got, "one") {
		t.Errorf("the host gets %q, %v", got, err)
	}
	for _, target := range targets[1:3] {
		if got := g.exec(fmt.Sprintf("timeout 3 wget -q -O - http://%s:%d/", target, published.Port())); got == "one" {
			t.Errorf("it reaches its own port through %s", target)
		}
	}
	// Nor the port at which nodes reach a machine, its own or another one's.
	service := g.server().Service
	if service == nil || service.Error != "" || service.Address != w.options.ServiceAddress.String() {
		t.Fatalf("nodes reach it at %+v", service)
	}
	forNodes := fmt.Sprintf("%s:%d", service.Address, service.Ports["page"])
	if got, err := page(forNodes); err != nil || !strings.HasSuffix(got, "one") {
		t.Errorf("nodes get %q, %v", got, err)
	}
	if got := g.exec("timeout 3 wget -q -O - http://" + forNodes + "/"); got == "one" {
		t.Error("a guest reaches the port for nodes")
	}
	select {
	case visitor := <-visits:
		t.Errorf("the listener on the host was reached from %s", visitor)
	default:
	}
	for _, g := range guests {
		g.remove()
	}
	w.expectClean()
}

// hostAddress returns an address of this host that is none of loopback.
func hostAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return netip.AddrFrom4([4]byte(network.IP.To4()))
		}
	}
	t.Skip("SKIP: this host has no network")
	return netip.Addr{}
}

// The address for nodes appears with the link to the node, after the machine: until then it says so, and Service is off and
// on while the machine runs.
func TestLongServiceAddress(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	w.options.ServiceAddress = netip.MustParseAddr("192.0.2.1") // this host does not have it
	w.open()
	g := w.boot(named("default", "one", func(m *backend.Machine) {
		m.Ports = []v1alpha1.Port{{Name: "page", Port: pagePort, Protocol: v1alpha1.ProtocolTCP}}
		m.Service = true
	}))[0]
	rights := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapPrm": "0000000000000000"}
	if diff := cmp.Diff(rights, harness.ProcessStatus(t, w.networkPID("default"), "NoNewPrivs", "Seccomp", "CapEff", "CapPrm")); diff != "" {
		t.Errorf("rights of the switch (-want +got):\n%s", diff)
	}
	server := g.server()
	if server.Service == nil || !strings.Contains(server.Service.Error, "does not have the address 192.0.2.1") || server.NetworkError != "" {
		t.Errorf("without the address: %+v, network error %q", server.Service, server.NetworkError)
	}
	w.options.ServiceAddress = netip.Addr{}
	w.open()
	if service := g.server().Service; service == nil || service.Error != noServiceAddress {
		t.Errorf("without virtualMachines.serviceAddress: %+v", service)
	}
	w.options.ServiceAddress = hostAddress(t)
	w.open()
	harness.Eventually(t, "nodes reach it", func() bool {
		service := g.server().Service
		if service == nil || service.Error != "" {
			return false
		}
		got, err := page(fmt.Sprintf("%s:%d", service.Address, service.Ports["page"]))
		return err == nil && strings.HasSuffix(got, "one")
	})
	before := g.server().Service
	g.machine.Service = false
	g.machine.Hash += "+"
	w.do(w.driver.Reconfigure(t.Context(), g.machine))
	if _, err := page(fmt.Sprintf("%s:%d", before.Address, before.Ports["page"])); err == nil || g.server().Service != nil {
		t.Errorf("turned off, nodes get an answer, %v, at %+v", err, g.server().Service)
	}
	g.remove()
	w.expectClean()
}

// page returns what a port of the host answers.
func page(endpoint string) (string, error) {
	conn, err := net.DialTimeout("tcp", endpoint, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return strings.TrimSpace(body), err
}

// Ports are published, moved and withdrawn while the machine runs.
func TestLongPortsOfARunningMachine(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	g := w.boot(named("default", "one"))[0]
	publish := func(ports ...v1alpha1.Port) []v1alpha1.Endpoint {
		t.Helper()
		g.machine.Hash += "+"
		g.machine.Ports = ports
		w.do(w.driver.Reconfigure(t.Context(), g.machine))
		server := g.server()
		if len(server.Pending) > 0 || server.NetworkError != "" {
			t.Errorf("after a change of ports: pending %v, %s", server.Pending, server.NetworkError)
		}
		return server.Endpoints
	}
	if endpoints := publish(); len(endpoints) > 0 {
		t.Errorf("endpoints without ports: %v", endpoints)
	}
	web := v1alpha1.Port{Name: "web", Port: pagePort, Protocol: v1alpha1.ProtocolTCP}
	first := publish(web)[0].Address
	if got, err := page(first); err != nil || got != "one" {
		t.Errorf("the published port answers %q, %v", got, err)
	}
	g.exec("echo moved > /srv/index.html; busybox httpd -h /srv -p 81; mkdir /srv2; echo other > /srv2/index.html; busybox httpd -h /srv2 -p 82")
	web.Port = 82
	if moved := publish(web)[0].Address; moved != first {
		t.Errorf("the port of the host changed from %s to %s", first, moved)
	}
	if got, err := page(first); err != nil || got != "other" {
		t.Errorf("the moved port answers %q, %v", got, err)
	}
	web.Port = pagePort
	both := publish(web, v1alpha1.Port{Name: "more", Port: 81, Protocol: v1alpha1.ProtocolTCP})
	for _, endpoint := range both {
		if got, err := page(endpoint.Address); err != nil || got != "moved" {
			t.Errorf("port %s answers %q, %v", endpoint.Name, got, err)
		}
	}
	publish()
	for _, endpoint := range both {
		if got, err := page(endpoint.Address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("withdrawn port %s answers %q, %v", endpoint.Name, got, err)
		}
	}

	// Only while it is on, and at the same address again.
	last := publish(web)[0].Address
	w.do(w.driver.Stop(t.Context(), g.machine.Identity, 0))
	harness.Eventually(t, "the port of a machine that is off is closed", func() bool {
		_, err := page(last)
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if pid := w.networkPID("default"); pid != 0 {
		harness.Eventually(t, "the network ends with its last machine", func() bool { return w.networkPID("default") == 0 })
	}
	if server := g.server(); len(server.Addresses) != 1 {
		t.Errorf("a machine that is off has the addresses %v", server.Addresses)
	}
	g = w.boot(g.machine)[0]
	if got := g.server().Endpoints; len(got) != 1 || got[0].Address != last {
		t.Errorf("after a restart it is at %v, want %s", got, last)
	}
	g.remove()
	w.expectClean()
}

// A port that another process has taken meanwhile is replaced.
func TestLongPortTakenByAnotherProcess(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	g := w.boot(named("default", "one", func(m *backend.Machine) {
		m.Ports = []v1alpha1.Port{{Name: "web", Port: pagePort, Protocol: v1alpha1.ProtocolTCP}}
	}))[0]
	before := g.server().Endpoints[0].Address
	w.do(w.driver.Close())
	signals.Send(t, w.networkPID("default"), syscall.SIGKILL)
	harness.Eventually(t, "the network has ended", func() bool { return w.networkPID("default") == 0 })
	other, err := net.Listen("tcp", before)
	w.do(err)
	defer func() { _ = other.Close() }()
	w.open()
	g.fixture = w
	harness.Eventually(t, "the port is published elsewhere", func() bool {
		endpoints := g.server().Endpoints
		if len(endpoints) != 1 || endpoints[0].Address == before {
			return false
		}
		got, err := page(endpoints[0].Address)
		return err == nil && got == "one"
	})
	g.remove()
	w.expectClean()
}

// The network is back soon after it was killed, and connections between guests survive that and a restart of the manager.
func TestLongNetworkIsKilled(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	guests := w.boot(named("default", "one", func(m *backend.Machine) {
		m.Ports = []v1alpha1.Port{{Name: "web", Port: pagePort, Protocol: v1alpha1.ProtocolTCP}}
	}), named("default", "two"))
	one, two := guests[0], guests[1]
	endpoint := one.server().Endpoints[0].Address
	// A connection that lasts: a line for each second. The listening nc ends with the input of the other one.
	two.exec("mkfifo /tmp/lines; (while true; do date +%s; sleep 1; done > /tmp/lines) > /dev/null 2>&1 & (nc -l -p 99 < /tmp/lines) > /dev/null 2>&1 &")
	harness.Eventually(t, "two listens", func() bool { return strings.Contains(two.exec("cat /proc/net/tcp /proc/net/tcp6"), ":0063 ") }) // port 99
	one.exec("(sleep 1000 | nc " + two.address() + " 99 > /tmp/heard; echo ended > /tmp/over) > /dev/null 2>&1 &")
	lines := func() string { return one.exec("wc -l < /tmp/heard") }
	harness.Eventually(t, "the connection works", func() bool { return lines() != "0" })

	before := w.networkPID("default")
	w.open()
	if after := w.networkPID("default"); after != before || before == 0 {
		t.Errorf("a new manager has the network %d, want %d", after, before)
	}
	began := time.Now()
	signals.Send(t, before, syscall.SIGKILL)
	harness.Eventually(t, "it is started again", func() bool { pid := w.networkPID("default"); return pid != 0 && pid != before })
	t.Logf("It is started again after %v", time.Since(began)) // a second on an idle host
	harness.Eventually(t, "the published port works", func() bool { got, err := page(endpoint); return err == nil && got == "one" })
	heard := lines()
	harness.Eventually(t, "the connection between the guests continues", func() bool { return lines() != heard })
	if got := one.exec("cat /tmp/over"); !strings.Contains(got, "No such file") {
		t.Errorf("the connection was interrupted: %s", got)
	}
	one.remove()
	two.remove()
	w.expectClean()
}

// A network whose process does not answer is reported, although nothing of it changes.
func TestLongNetworkIsSuspended(t *testing.T) {
	w := newFixture(t)
	w.run(w.firmware())
	proc, err := w.driver.processes.Find(networkProcess + "default")
	w.do(err)
	w.eventually("its network works", func(s *backend.Server) bool { return s.NetworkError == "" })
	signals.Send(t, proc.PID(), syscall.SIGSTOP)
	w.eventually("its network does not work", func(s *backend.Server) bool { return s.NetworkError != "" })
	signals.Send(t, proc.PID(), syscall.SIGCONT)
	w.eventually("its network works again", func(s *backend.Server) bool { return s.NetworkError == "" })
	w.remove()
}

// Addresses are the same for the life of a machine, also in a new manager that has lost the record of the network.
func TestAddressesLast(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	first := w.run(machine).Addresses
	if len(first) != 1 {
		t.Fatalf("addresses are %v", first)
	}
	w.stops()
	w.do(w.driver.Close())
	w.do(os.RemoveAll(filepath.Join(w.driver.networksDir(), "default")))
	w.open()
	if again := w.run(machine).Addresses; !slices.Equal(first, again) {
		t.Errorf("the address changed from %v to %v", first, again)
	}
	w.remove()
}
