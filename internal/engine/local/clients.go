package local

import (
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// clientInterval is the time between two looks at the connections to an API. A shorter connection is seen only if the kernel keeps its
// address, which it does for a minute after a client on this host has closed it in order.
const clientInterval = 250 * time.Millisecond

// clients finds out whether anyone but us is connected to an API. It remembers what it saw the last time.
type clients struct {
	ours   map[netip.AddrPort]bool // connections of ours, by the address of the client
	closed map[netip.AddrPort]bool // closed ones of which the kernel keeps the address
	looked bool
}

// connected reports whether a client is connected to an API, or was since the last call. The connections of sockets for which isOurs
// returns true are not those of clients.
func (c *clients) connected(all []socket, api netip.AddrPort, isOurs func(inode uint64) bool) bool {
	ours, closed := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for _, s := range all {
		if s.remote == api && (c.ours[s.local] || isOurs(s.inode)) {
			ours[s.local] = true
		}
	}
	found := false
	for _, s := range all {
		var client netip.AddrPort
		switch {
		case s.state == stateListen:
			continue
		case s.local == api: // the end of the API
			client = s.remote
		case s.remote == api:
			client = s.local
		default:
			continue
		}
		switch {
		case ours[client]:
		case c.ours[client]:
			ours[client] = true // we have closed it
		case s.state == stateTimeWait:
			closed[client] = true
			found = found || c.looked && !c.closed[client]
		default:
			found = true
		}
	}
	c.ours, c.closed, c.looked = ours, closed, true
	return found
}

// watchClients keeps m.lastClient up to date as long as a control plane is supervised.
func (e *Engine) watchClients(m *member, cp *controlplane.ControlPlane) {
	api, err := netip.ParseAddrPort(strings.TrimPrefix(cp.Server(), "https://"))
	if err != nil {
		e.opts.Log.Error(err, "Cannot watch the clients of a cluster, which is never idle", "Cluster", m.name)
		return
	}
	ticker := e.opts.Clock.NewTicker(clientInterval)
	defer ticker.Stop()
	var seen clients
	failed := false
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C():
		}
		isConnected, err := e.hasClient(&seen, cp, api)
		if err != nil && !failed {
			e.opts.Log.Error(err, "Cannot watch the clients of a cluster, which does not become idle", "Cluster", m.name)
		}
		failed = err != nil
		m.mu.Lock()
		if m.cp != cp {
			m.mu.Unlock()
			return
		}
		if isConnected || failed || m.idleListener != nil && m.idleListener.isUsed() {
			m.lastClient = e.opts.Clock.Now()
		}
		m.mu.Unlock()
	}
}

// hasClient reports whether anyone but the control plane and this process is connected to an API. The sockets are read first: one of
// ours that is in the list has an owner afterwards.
func (e *Engine) hasClient(seen *clients, cp *controlplane.ControlPlane, api netip.AddrPort) (bool, error) {
	all, err := readSockets()
	if err != nil {
		return false, err
	}
	pids := []int{os.Getpid()}
	for _, c := range cp.Components() {
		if c.Status.PID != 0 {
			pids = append(pids, c.Status.PID)
		}
	}
	own := sync.OnceValue(func() map[uint64]bool { return socketsOf(pids) }) // only if there is a new connection
	return seen.connected(all, api, func(inode uint64) bool { return own()[inode] }), nil
}
