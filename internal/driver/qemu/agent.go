package qemu

import (
	"context"
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
	agentPatience = 3
	// The pauses between two questions to the agent: short until the guest has
	// addresses.
	firstAgentPause = 50 * time.Millisecond
	bootAgentPause  = time.Second
	lastAgentPause  = 30 * time.Second
)

// setAgentOpen notes whether the guest has opened the channel of its agent.
func (m *machine) setAgentOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.agent == backend.AgentNone:
	case open && m.agentStop == nil:
		ctx, cancel := context.WithCancel(m.d.ctx)
		m.agentStop = cancel
		m.d.tasks.Go(func() { m.followAgent(ctx) })
	case !open && m.agentStop != nil:
		m.stopAgent()
		if m.agent == backend.AgentConnected {
			m.agent = backend.AgentLost
			go m.tell() // m.mu is held
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
		var addresses []string
		var err error
		if conn == nil {
			if conn, err = m.dialAgent(ctx); err == nil {
				m.agentGreeted(ctx)
			}
		}
		if err == nil {
			addresses, err = askAddresses(ctx, conn)
		}
		if err == nil {
			failures = 0
			m.agentAnswered(ctx, addresses)
		} else {
			if conn != nil {
				conn.Close()
				conn = nil
			}
			if failures++; failures >= agentPatience {
				m.agentFailed(ctx)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		switch {
		case err == nil && len(addresses) > 0:
			pause = lastAgentPause
		case pause < lastAgentPause:
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
func askAddresses(ctx context.Context, conn *qmp.Client) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var interfaces []struct {
		Name      string `json:"name"`
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := errIgnore(conn.Run(ctx, "guest-network-get-interfaces", nil, &interfaces)); err != nil {
		return nil, err
	}
	var all []string
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			address, err := netip.ParseAddr(strings.TrimSpace(a.Address))
			if err == nil && !address.IsLoopback() && !address.IsLinkLocalUnicast() {
				all = append(all, address.String())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// agentGreeted notes that the agent listens, which is an answer, too. Of a run that was
// found it is not told yet: its addresses would seem to be gone.
func (m *machine) agentGreeted(ctx context.Context) {
	m.mu.Lock()
	early, addresses := m.agent == backend.AgentWaiting && !m.found, m.addresses
	m.mu.Unlock()
	if early {
		m.agentAnswered(ctx, addresses)
	}
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
		m.tell()
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
		m.tell()
	}
}
