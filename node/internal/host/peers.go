package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// The nodes of a control plane have a link for each two of them. The node that is started makes the links to those that run,
// in both network namespaces. A link goes with either namespace, so a node that ends takes its links along, and no
// process has to be there for the traffic between other nodes.

// peerRecord is what a node writes into settings.Peers, so that others find its network namespace.
type peerRecord struct {
	// PID of the first process inside.
	PID int `json:"pid"`
	// Namespace identifies its network namespace. Another process with the same PID has another one.
	Namespace string `json:"namespace"`
}

// linkPeers makes the links between the node with this first process and the other nodes of its control plane that run.
func linkPeers(s settings.Settings, pid int) error {
	unlock, err := lockPeers(s.Peers)
	if err != nil {
		return err
	}
	defer unlock()
	others, err := readPeers(s)
	if err != nil {
		return err
	}
	for index, other := range others {
		if err := linkPair(s, pid, index, other.PID); err != nil {
			if !other.runs() {
				continue // it has ended meanwhile, and links this node when it is started again
			}
			return fmt.Errorf("link to node %d: %w", index, err)
		}
	}
	own := peerRecord{PID: pid}
	if own.Namespace, err = networkNamespace(pid); err != nil {
		return err
	}
	data, err := json.Marshal(own)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Peers, strconv.Itoa(s.Index)+".json"), data, 0o600)
}

// lockPeers makes the directory, and has one node at a time in it: of two nodes that are started together, the second one sees the first.
func lockPeers(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// readPeers returns the other nodes that run, by their index.
func readPeers(s settings.Settings) (map[int]peerRecord, error) {
	files, err := filepath.Glob(filepath.Join(s.Peers, "*.json"))
	if err != nil {
		return nil, err
	}
	others := map[int]peerRecord{}
	for _, file := range files {
		index, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil || index < 0 || index >= settings.MaxNodes || index == s.Index {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var other peerRecord
		// A file that is damaged is one of a node that was killed while it wrote, before it had links.
		if json.Unmarshal(data, &other) == nil && other.runs() {
			others[index] = other
		}
	}
	return others, nil
}

// runs reports whether the node still runs.
func (r peerRecord) runs() bool {
	namespace, err := networkNamespace(r.PID)
	return err == nil && namespace == r.Namespace
}

// networkNamespace identifies the network namespace of a process.
func networkNamespace(pid int) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
}

// linkPair makes the link between this node and another one.
func linkPair(s settings.Settings, pid, otherIndex, otherPID int) error {
	other := s
	other.Index = otherIndex
	ours, err := openNamespace(pid)
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := openNamespace(otherPID)
	if err != nil {
		return err
	}
	defer theirs.Close()
	to, back := s.Peer(otherIndex), other.Peer(s.Index)
	// The kernel takes a moment to give up the namespaces of a node that has ended, and the link to it.
	if stale, err := theirs.LinkByName(back.Link); err == nil {
		if err := theirs.LinkDel(stale); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove the link %s of an earlier run: %w", back.Link, err)
		}
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.Namespace = to.Link, netlink.NsPid(pid)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: back.Link, PeerNamespace: netlink.NsPid(otherPID)}); err != nil {
		return err
	}
	return errors.Join(setUpPeer(ours, s, to), setUpPeer(theirs, other, back))
}

// openNamespace opens the network namespace of a process.
func openNamespace(pid int) (*netlink.Handle, error) {
	namespace, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer func() { _ = namespace.Close() }()
	return netlink.NewHandleAt(namespace)
}

// setUpPeer gives the link to another node the address of this node, from which it then sends, and the routes to the other
// node and its Pods.
func setUpPeer(h *netlink.Handle, s settings.Settings, to settings.Peer) error {
	link, err := h.LinkByName(to.Link)
	if err != nil {
		return fmt.Errorf("link %s: %w", to.Link, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", to.Link, err)
	}
	index := link.Attrs().Index
	for _, of := range s.Families() {
		own, other := of(single(s.NodeAddress().Addr())), of(single(to.Address))
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: ipNet(own), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("link %s: address %s: %w", to.Link, own, err)
		}
		for _, route := range []netlink.Route{
			{LinkIndex: index, Dst: ipNet(other), Scope: netlink.SCOPE_LINK},
			{LinkIndex: index, Dst: ipNet(of(to.Pods)), Gw: other.Addr().AsSlice()},
		} {
			if err := h.RouteAdd(&route); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("route to %s by the link %s: %w", route.Dst, to.Link, err)
			}
		}
	}
	return nil
}
