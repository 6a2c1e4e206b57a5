package controlplane

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// layout is a data directory; its methods return the paths in it.
type layout string

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

func (l layout) pki(name string) string      { return l.path("pki", name) }
func (l layout) kubeconfig() string          { return l.path("kubeconfig") }
func (l layout) userFile(u string) string    { return l.path("pki", u+".kubeconfig") }
func (l layout) processes() string           { return l.path("processes") }
func (l layout) log(component string) string { return l.path("logs", component+".log") }
func (l layout) etcdData() string            { return l.path("etcd") }
func (l layout) volumePlugins() string       { return l.path("volume-plugins") }
func (l layout) egress() string              { return l.path("egress.yaml") }
func (l layout) stages() string              { return l.path("kwok-stages.yaml") }
func (l layout) stateFile() string           { return l.path("state.json") }
func (l layout) nodeSet() string             { return l.path("nodes.json") }

// sockets is the working directory of etcd and kube-apiserver. They name etcd's socket relative to it, because a
// unix socket's path must fit into 108 bytes and a data directory may be anywhere.
func (l layout) sockets() string { return l.path("sockets") }

// create creates the directories. Other users have no access, because they contain private keys and sockets.
func (l layout) create() error {
	for _, dir := range []string{string(l), l.path("pki"), l.path("logs"), l.sockets(), l.etcdData(), l.volumePlugins()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the data directory: %w", err)
		}
	}
	return nil
}

// state is the persistent state of a data directory besides certificates and etcd's data.
type state struct {
	Port      int               `json:"port"`                // of the API; chosen once
	Address   string            `json:"address,omitempty"`   // of the API; empty for loopback
	Ephemeral bool              `json:"ephemeral"`           // started without fsync
	Nodes     int               `json:"nodes"`               // simulated nodes
	RealNodes int               `json:"realNodes,omitempty"` // so many have been started, and their Nodes may be in the API
	Services  string            `json:"services,omitempty"`  // the networks of Services, separated by a comma: IPv4 and, if there is one, IPv6; empty for the usual one
	Rotation  rotation          `json:"rotation,omitzero"`   // of client certificates
	Fork      string            `json:"fork,omitempty"`      // file of the snapshot whose objects etcd does not have yet; see Fork
	Commands  map[string]string `json:"commands"`            // component to a hash of the command line it was started with
}

// loadState reads the state. Without a state file, it is empty.
func loadState(dir layout) (state, error) {
	s := state{Commands: map[string]string{}}
	data, err := os.ReadFile(dir.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the state of the control plane: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s is damaged (%w): delete it, and a new port is chosen", dir.stateFile(), err)
	}
	for network := range strings.SplitSeq(s.Services, ",") {
		if _, err := netip.ParsePrefix(network); err != nil && s.Services != "" {
			return s, fmt.Errorf("%s is damaged (services: %w)", dir.stateFile(), err)
		}
	}
	if s.Commands == nil {
		s.Commands = map[string]string{}
	}
	return s, nil
}

func saveState(dir layout, s state) error {
	return atomicfile.WriteJSON(dir.stateFile(), s, atomicfile.Durable)
}

// The candidate ports are below the kernel's range of ephemeral ports, so that outgoing connections do not take our
// port while the control plane is stopped.
const (
	firstPort = 20000
	lastPort  = 32000
)

// loopback is the default address of the API.
const loopback = "127.0.0.1"

// freePort returns a free port of an address. The search starts at a port that depends on the seed, so that control
// planes rarely collide.
func freePort(seed, address string) (int, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed)) // never fails
	const count = lastPort - firstPort
	start := int(h.Sum32() % count)
	for i := range count {
		port := firstPort + (start+i)%count
		if isFree(address, port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s from %d to %d", cmp.Or(address, loopback), firstPort, lastPort)
}

// isFree reports whether the port can be listened on now. An empty address is loopback.
func isFree(address string, port int) bool { return tryListen(address, port) == nil }

func tryListen(address string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(address, loopback), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

func serverURL(address string, port int) string {
	return "https://" + net.JoinHostPort(cmp.Or(address, loopback), strconv.Itoa(port))
}

// server returns the URL of the API.
func (s state) server() string { return serverURL(s.Address, s.Port) }
