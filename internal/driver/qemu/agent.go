package qemu

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
)

const (
	// agentTimeout is how long a guest agent may take to answer.
	agentTimeout = 5 * time.Second
	// agentPatience is how many answers in a row may fail before the agent counts as
	// lost.
	maxAgentFailures = 3
	// The pauses between two questions to the agent: short until the guest has
	// addresses.
	firstAgentPause = 50 * time.Millisecond
	bootAgentPause  = time.Second
	lastAgentPause  = 30 * time.Second
	// maxAddresses is how many addresses of a guest are told, as the API has it.
	maxAddresses = 16
	// A guest can change what is told of it at will, and each change is written to the API:
	// a few changes are told at once, then one in tellPause.
	notifyInterval = 5 * time.Second
	tellBurst      = 10
)

// siteLocal are addresses that RFC 3879 has abolished. QEMU's own network still hands them
// out, seconds after the one of IPv4, and nobody can reach them.
var siteLocal = netip.MustParsePrefix("fec0::/10")

// setAgentOpen notes whether the guest has opened the channel of its agent.
func (m *machine) setAgentOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.agent == backend.AgentNone:
	case open && m.agentStop == nil:
		if m.awaitingAgent && m.agent == backend.AgentWaiting {
			// It has answered the manager before this one. Whether it still does, the next
			// question tells.
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

// stopAgent lets go of the agent; m.mu is held.
func (m *machine) stopAgent() {
	if m.agentStop != nil {
		m.agentStop()
		m.agentStop = nil
	}
}

// followAgent asks the agent how the guest is until the context ends.
func (m *machine) followAgent(ctx context.Context) {
	var conn *qmp.Client
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	pause, failures := firstAgentPause, 0
	for ctx.Err() == nil {
		var next time.Duration
		var err error
		if conn == nil {
			if conn, err = m.dialAgent(ctx); err == nil {
				next = m.agentGreeted(ctx)
			}
		}
		if err == nil && next == 0 {
			next, err = m.queryAgent(ctx, conn)
		}
		if err == nil {
			failures = 0
		} else {
			if conn != nil {
				conn.Close()
				conn = nil
			}
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

func (m *machine) dialAgent(ctx context.Context) (*qmp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	path, release, err := shortPath(m.path(agentSocket))
	if err != nil {
		return nil, err
	}
	defer release()
	return qmp.DialAgent(ctx, path)
}

// askAddresses returns the addresses of the guest. An agent that cannot tell them has
// none.
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

// usable returns those of the addresses that a guest tells that somebody may reach, in
// their usual form, sorted. A zone is a name, in which a guest can write anything.
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

// tellOfGuest says that the guest has changed what is seen of the machine. The last change
// is always told, if need be with a delay.
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
	case waiting: // what is told then is the state of that moment
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

// askAgent asks the agent for the addresses of the guest. It returns when to ask again if
// there are some.
func (m *machine) queryAgent(ctx context.Context, conn *qmp.Client) (next time.Duration, err error) {
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

// agentGreeted notes that the agent listens, which is an answer, too. If the guest need
// not be asked for more at once, because an earlier manager has, it returns when: guests
// that are found at the same time are not asked at the same time. Of another run that was
// found it is not told yet: its addresses would seem to be gone.
func (m *machine) agentGreeted(ctx context.Context) time.Duration {
	m.mu.Lock()
	known := m.awaitingAgent && m.agent == backend.AgentConnected
	early, addresses := m.agent == backend.AgentWaiting && !m.attached, m.addresses
	m.awaitingAgent = false
	m.mu.Unlock()
	switch {
	case known:
		m.measure() // the first figures; nothing else is new
		return 1 + rand.N(lastAgentPause)
	case early:
		m.agentAnswered(ctx, addresses)
	}
	return 0
}

// agentAnswered notes what the agent has said.
func (m *machine) agentAnswered(ctx context.Context, addresses []string) {
	m.mu.Lock()
	first := m.agent != backend.AgentConnected
	m.mu.Unlock()
	if first {
		m.measure() // so that the first figures are written together with this
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

// agentFailed notes that the agent does not answer.
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
