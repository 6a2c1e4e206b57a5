package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// TestRestart: connections between machines survive the switch, as those that guests know nothing of.
func TestRestart(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	host := harness.FreeAddress(t)
	b.machine.Ports = []Forward{{Name: "web", Protocol: TCP, Host: host, GuestPort: 80}}
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	b.echoes(80)
	conn, err := a.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	w.stop()
	w.start()
	talkOn(t, conn)
	talk(t, dialHost(t, "tcp", host), "b")
	if status := w.machine(b); !status.Leased {
		t.Errorf("status %+v", status)
	}
}

// TestQEMU: the socket may come later, and another QEMU may take its place.
func TestQEMU(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	late := a.machine
	late.UID, late.Name, late.Address, late.MAC = "uid-late", "late", netip.MustParseAddr("10.77.1.9"), "52:54:00:00:01:09"
	late.Socket = filepath.Join(shortDir(t), "nic.sock")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	w.apply(func(c *Config) { c.Machines = append(c.Machines, late) })
	w.eventually("an error is shown", func() bool {
		return strings.Contains(w.status().Machines[1].Error, "no such file or directory")
	})
	for range 2 {
		listener, err := net.Listen("unix", late.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		w.eventually("it is connected", func() bool { return w.status().Machines[1].Connected })
		_, _ = conn.Write(append([]byte{0, 0, 0, 42}, appendARP(appendEthernet(nil, broadcastMAC, [macLen]byte{0x52, 0x54, 0, 0, 1, 9}, etherARP), arpRequest,
			[macLen]byte{0x52, 0x54, 0, 0, 1, 9}, late.Address, [macLen]byte{}, a.machine.Address)...))
		reply := make([]byte, lengthLen+etherLen+arpLen)
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatal(err)
		}
		if got := [macLen]byte(reply[lengthLen+etherLen+8:]); got != a.mac() {
			t.Errorf("the ARP answer says %x", got)
		}
		_ = conn.Close()
		_ = listener.Close()
		w.eventually("it is not connected", func() bool { return !w.status().Machines[1].Connected })
	}
}

func TestConfig(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	good := w.config
	for name, change := range map[string]func(*Config){
		"no namespace":          func(c *Config) { c.Namespace = "" },
		"a namespace as a path": func(c *Config) { c.Namespace = "../x" },
		"another prefix":        func(c *Config) { c.Prefix = netip.MustParsePrefix("10.77.1.0/25") },
		"no prefix":             func(c *Config) { c.Prefix = netip.Prefix{} },
		"IPv6":                  func(c *Config) { c.Prefix = netip.MustParsePrefix("fd00::/64") },
		"an unknown mode":       func(c *Config) { c.Egress.Mode = "some" },
		"the same name": func(c *Config) {
			c.Machines = append(c.Machines, with(c.Machines[0], "x", "10.77.1.7", "02:00:00:00:00:01", "A"))
		},
		"the same address": func(c *Config) {
			c.Machines = append(c.Machines, with(c.Machines[0], "x", "10.77.1.2", "02:00:00:00:00:01", "x"))
		},
		"the same MAC": func(c *Config) {
			c.Machines = append(c.Machines, with(c.Machines[0], "x", "10.77.1.7", "52:54:00:00:01:02", "x"))
		},
		"the gateway's address": func(c *Config) { c.Machines[0].Address = netip.MustParseAddr("10.77.1.1") },
		"broadcast":             func(c *Config) { c.Machines[0].Address = netip.MustParseAddr("10.77.1.255") },
		"outside":               func(c *Config) { c.Machines[0].Address = netip.MustParseAddr("10.77.2.2") },
		"a multicast MAC":       func(c *Config) { c.Machines[0].MAC = "01:00:00:00:00:01" },
		"the gateway's MAC":     func(c *Config) { c.Machines[0].MAC = "0e:6b:65:6c:00:01" },
		"no name":               func(c *Config) { c.Machines[0].Name = "a.b" },
		"no socket":             func(c *Config) { c.Machines[0].Socket = "" },
		"no protocol": func(c *Config) {
			c.Machines[0].Ports = []Forward{{Host: netip.MustParseAddrPort("127.0.0.1:1"), GuestPort: 1}}
		},
		"no port": func(c *Config) { c.Machines[0].Ports = []Forward{{Protocol: TCP, GuestPort: 1}} },
		"itself as a peer": func(c *Config) {
			c.Peers = []Peer{{Namespace: "one", Prefix: netip.MustParsePrefix("10.77.2.0/24"), Socket: "/x"}}
		},
		"a peer inside": func(c *Config) {
			c.Peers = []Peer{{Namespace: "two", Prefix: netip.MustParsePrefix("10.77.1.128/25"), Socket: "/x"}}
		},
	} {
		config := good
		config.Machines = append([]Machine(nil), good.Machines...)
		change(&config)
		if err := w.client.Apply(context.Background(), config); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stored, err := readConfig(w.dir)
	if err != nil || len(stored.Machines) != 1 || stored.Machines[0].Name != "a" {
		t.Errorf("stored %+v, %v", stored, err)
	}
	info, err := os.Stat(filepath.Join(w.dir, configFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, %v", info.Mode(), err)
	}
}

func with(m Machine, uid, address, mac, name string) Machine {
	m.UID, m.Address, m.MAC, m.Name = uid, netip.MustParseAddr(address), mac, name
	return m
}

func TestServeFailsWithAReason(t *testing.T) {
	dir := shortDir(t)
	serve := func() error { return Serve(t.Context(), Options{Directory: dir, Log: io.Discard}) }
	if err := serve(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no configuration: %v", err)
	}
	for name, content := range map[string]string{"empty": "", "cut off": `{"namespace":"one"`, "of another kind": `[]`, "without content": `{}`} {
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := serve(); err == nil || !strings.Contains(err.Error(), configFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := WriteConfig(dir, Config{Namespace: "one"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("WriteConfig: %v", err)
	}
	if err := WriteConfig(dir, Config{Namespace: "one", Prefix: netip.MustParsePrefix("10.77.1.0/24")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- Serve(ctx, Options{Directory: dir, Log: io.Discard}) }()
	w := &world{t: t, client: NewClient(dir)}
	w.eventually("it answers", func() bool { _, err := w.client.Status(ctx); return err == nil })
	if err := serve(); err == nil || !strings.Contains(err.Error(), "another process serves this network") {
		t.Errorf("a second switch: %v", err)
	}
	cancel()
	if err := <-first; err != nil {
		t.Errorf("the end: %v", err)
	}
}
