package qemu

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// agentTimeout is the response timeout of a guest agent.
	agentTimeout = 5 * time.Second
	// maxAgentFailures is the number of consecutive failures after which the agent counts
	// as lost.
	maxAgentFailures = 3
	// The intervals of queries of the agent: short until the guest has
	// addresses.
	firstAgentPause = 50 * time.Millisecond
	bootAgentPause  = time.Second
	lastAgentPause  = 30 * time.Second
	// maxAddresses is the number of addresses that are reported, the limit of the API.
	maxAddresses = 16
	// A guest can change its reported state at will, and each change is written to the API.
	// So notifications are rate limited: a short burst, then one in each notifyInterval.
	notifyInterval = 5 * time.Second
	notifyBurst    = 10
)

// siteLocal addresses were deprecated by RFC 3879. QEMU's user mode network still assigns
// them, seconds after the IPv4 address, but they are not reachable.
var siteLocal = netip.MustParsePrefix("fec0::/10")

// setAgentOpen records whether the guest has opened the channel of its agent.
func (m *machine) setAgentOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.agent == backend.AgentNone:
	case open && m.agentStop == nil:
		if m.awaitingAgent && m.agent == backend.AgentWaiting {
			// It responded to the previous manager. The next query shows whether it still
			// does.
			m.agent = backend.AgentConnected
		}
		ctx, cancel := context.WithCancel(m.d.ctx)
		m.agentStop = cancel
		m.d.tasks.Go(func() { m.followAgent(ctx) })
	case !open && m.awaitingAgent && m.agent == backend.AgentWaiting:
		m.agent, m.awaitingAgent = backend.AgentLost, false
	case !open && m.agentStop != nil:
		m.stopAgent()
		if m.agent == backend.AgentConnected {
			m.agent = backend.AgentLost
			go m.notifyGuestChange() // m.mu is held
		}
	}
}

// stopAgent stops following the agent; m.mu is held.
func (m *machine) stopAgent() {
	if m.agentStop != nil {
		m.agentStop()
		m.agentStop = nil
	}
}

// followAgent queries the agent periodically until the context ends.
func (m *machine) followAgent(ctx context.Context) {
	var conn *qmp.Client
	defer func() { m.closeAgent(conn) }()
	pause, failures := firstAgentPause, 0
	for ctx.Err() == nil {
		var next time.Duration
		var err error
		if conn == nil {
			if conn, err = m.dialAgent(ctx); err == nil {
				err = m.greetAgent(ctx, conn)
			}
			if err == nil {
				m.mu.Lock()
				m.agentConn = conn
				m.mu.Unlock()
				next = m.agentGreeted(ctx)
			}
		}
		if err == nil && next == 0 {
			next, err = m.queryAgent(ctx, conn)
		}
		if err == nil {
			failures = 0
		} else {
			m.closeAgent(conn)
			conn = nil
			if failures++; failures >= maxAgentFailures {
				m.agentFailed(ctx)
			}
		}
		if next > 0 {
			pause = next
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if pause < lastAgentPause && next == 0 {
			pause = min(2*pause, bootAgentPause)
		}
	}
}

// greetAgent tells the guest what it has to know before anything else.
func (m *machine) greetAgent(ctx context.Context, conn *qmp.Client) error {
	_, err := m.thawWith(ctx, conn) // until then, an agent may reject everything else
	for _, tell := range []func(context.Context, *qmp.Client) error{m.setClock, m.startGuest, m.renameGuest} {
		if err == nil {
			err = tell(ctx, conn)
		}
	}
	return err
}

// closeAgent closes a connection to the agent, which may be nil.
func (m *machine) closeAgent(conn *qmp.Client) {
	if conn == nil {
		return
	}
	m.mu.Lock()
	if m.agentConn == conn { // there may be a newer one
		m.agentConn = nil
	}
	m.mu.Unlock()
	conn.Close()
}

func (m *machine) dialAgent(ctx context.Context) (*qmp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	path, release, err := shortPath(m.path(qemu.AgentSocket))
	if err != nil {
		return nil, err
	}
	defer release()
	return qmp.DialAgent(ctx, path)
}

// queryAddresses returns the addresses of the guest, none if the agent does not support the
// query.
func queryAddresses(ctx context.Context, conn *qmp.Client) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var interfaces []struct {
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := connectionError(conn.Run(ctx, "guest-network-get-interfaces", nil, &interfaces)); err != nil {
		return nil, err
	}
	var all []string
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			all = append(all, a.Address)
		}
	}
	return reachable(all), nil
}

// reachable returns the reachable addresses among those that a guest reported, in canonical
// form, sorted. It drops zones: a zone is a name that the guest can choose.
func reachable(reported []string) []string {
	var all []string
	for _, text := range reported {
		address, err := netip.ParseAddr(strings.TrimSpace(text))
		if err == nil && address.Zone() == "" && address.IsGlobalUnicast() && !siteLocal.Contains(address) {
			all = append(all, address.String())
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxAddresses)]
}

// notifyGuestChange notifies the controller of a change caused by the guest. Notifications are
// rate limited, but the last change is always reported, if necessary with a delay.
func (m *machine) notifyGuestChange() {
	m.mu.Lock()
	waiting := m.notifyPending
	var delay time.Duration
	if !waiting {
		delay = m.notifyLimiter.Reserve().Delay()
		m.notifyPending = delay > 0
	}
	m.mu.Unlock()
	switch {
	case waiting: // a notification is pending, which reports the state at its time
	case delay == 0:
		m.notifyChange()
	default:
		m.d.tasks.Go(func() {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-m.d.ctx.Done():
				return
			case <-timer.C:
			}
			m.mu.Lock()
			m.notifyPending = false
			m.mu.Unlock()
			m.notifyChange()
		})
	}
}

// queryAgent queries the addresses of the guest. If there are any, it returns when to query
// again.
func (m *machine) queryAgent(ctx context.Context, conn *qmp.Client) (next time.Duration, err error) {
	m.mu.Lock()
	isFrozen := m.def.GuestFrozen
	m.mu.Unlock()
	if isFrozen {
		return 0, nil // the agent may reject the query
	}
	addresses, err := queryAddresses(ctx, conn)
	if err != nil {
		return 0, err
	}
	m.agentAnswered(ctx, addresses)
	m.saveGuestReport(ctx, addresses)
	if len(addresses) == 0 {
		return 0, nil
	}
	return lastAgentPause, nil
}

// agentGreeted records that the agent has responded to the handshake. If a previous manager
// has already queried the guest, it returns a jittered delay for the next query, so that guests
// found at startup are not all queried at once. For other runs found at startup it notifies
// nobody yet: the addresses would briefly disappear from the status.
func (m *machine) agentGreeted(ctx context.Context) time.Duration {
	m.mu.Lock()
	known := m.awaitingAgent && m.agent == backend.AgentConnected
	early, addresses := m.agent == backend.AgentWaiting && !m.attached, m.addresses
	m.awaitingAgent = false
	m.mu.Unlock()
	switch {
	case known:
		m.measure(nil) // the first usage; nothing else is new
		return 1 + rand.N(lastAgentPause)
	case early:
		m.agentAnswered(ctx, addresses)
	}
	return 0
}

// agentAnswered records a response of the agent.
func (m *machine) agentAnswered(ctx context.Context, addresses []string) {
	m.mu.Lock()
	first := m.agent != backend.AgentConnected
	m.mu.Unlock()
	if first {
		bytes := m.logBytes()
		m.mu.Lock()
		m.hasBooted(bytes)
		m.mu.Unlock()
		m.wantTemplate()
		m.measure(nil) // so that the first usage is written together with this
	}
	m.mu.Lock()
	changed := ctx.Err() == nil && (first || !slices.Equal(m.addresses, addresses))
	if changed {
		m.agent, m.addresses = backend.AgentConnected, addresses
	}
	m.mu.Unlock()
	if changed {
		m.notifyGuestChange()
	}
}

// agentFailed records that the agent does not respond.
func (m *machine) agentFailed(ctx context.Context) {
	m.mu.Lock()
	changed := ctx.Err() == nil && m.agent == backend.AgentConnected
	if changed {
		m.agent = backend.AgentLost
	}
	m.mu.Unlock()
	if changed {
		m.notifyGuestChange()
	}
}
