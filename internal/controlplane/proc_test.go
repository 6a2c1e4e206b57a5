package controlplane_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// cmdline returns the arguments of a process.
func cmdline(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// listening returns the addresses that a process listens on with TCP, or receives from with UDP.
func listening(t *testing.T, pid int) []net.IP {
	t.Helper()
	own := map[string]bool{} // socket:[inode]
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, _ := os.Readlink(fds + "/" + entry.Name()) // it may be closed by now
		own[target] = true
	}
	var addresses []net.IP
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		const (
			localField, stateField, inodeField = 1, 3, 9
			listen, unconnected                = "0A", "07"
		)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) <= inodeField || !own["socket:["+fields[inodeField]+"]"] {
				continue
			}
			if fields[stateField] == listen || strings.HasPrefix(table, "udp") && fields[stateField] == unconnected {
				addresses = append(addresses, parseAddress(t, fields[localField]))
			}
		}
	}
	return addresses
}

// parseAddress takes an address as proc(5) writes it: words of four bytes, each in the byte order of the machine, which
// is taken to be little endian.
func parseAddress(t *testing.T, text string) net.IP {
	t.Helper()
	host, _, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	return ip
}

// TestListening proves that listening finds what it is there to find.
func TestListening(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "0.0.0.0", "::1", "::"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Logf("SKIP %s: %v", address, err) // a machine without IPv6
			continue
		}
		want := net.ParseIP(address)
		found := slices.ContainsFunc(listening(t, os.Getpid()), func(ip net.IP) bool {
			return ip.Equal(want) || ip.IsUnspecified() && want.IsUnspecified() // Go listens for both on [::]
		})
		if !found {
			t.Errorf("%s is not among %v", address, listening(t, os.Getpid()))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
