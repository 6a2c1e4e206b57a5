package owner

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// agentTimeout is the response timeout of a guest agent.
	agentTimeout = 5 * time.Second
	// maxAgentFailures is the number of consecutive failures after which the agent counts as lost.
	maxAgentFailures = 3
	// The intervals of queries of the agent: short until the guest has addresses.
	firstAgentPause, bootAgentPause, lastAgentPause = 50 * time.Millisecond, time.Second, 30 * time.Second
	// MaxAddresses is the number of addresses that are reported, the limit of the API.
	MaxAddresses = 16
)

// ForkTimeout is how long a guest that goes on with the memory of another machine may take until it knows which machine it is. It boots
// then. Tests shorten it.
var ForkTimeout = savedmemory.ForkTimeout

// Agent is the state of the guest agent. The values are those of the driver contract, backend.Agent.
type Agent string

// The states.
const (
	// AgentNone: the guest has none.
	AgentNone Agent = ""
	// AgentWaiting: it has not answered yet.
	AgentWaiting Agent = "waiting"
	// AgentConnected: it answers.
	AgentConnected Agent = "connected"
	// AgentLost: it does not answer any more.
	AgentLost Agent = "lost"
)

// guest is what is known of the guest by its agent.
type guest struct {
	state     Agent
	addresses []string
	// known means that it has answered an earlier owner, and not this one yet.
	known bool
	// conn is the connection; nil if there is none. Who uses it fills turn.
	conn *qmp.Client
	turn chan struct{}
	// leave ends the queries; nil while the guest has the channel of its agent closed. left is closed then.
	leave context.CancelFunc
	left  chan struct{}
}

// siteLocal addresses were deprecated by RFC 3879. QEMU's user mode network still assigns them, seconds after the IPv4 address, but they
// are not reachable.
var siteLocal = netip.MustParsePrefix("fec0::/10")

// setAgentOpen notes whether the guest has opened the channel of its agent.
func (o *Owner) setAgentOpen(open bool) {
	o.mu.Lock()
	g := &o.guest
	changed := false
	switch {
	case g.state == AgentNone:
	case open && g.leave == nil:
		if g.known && g.state == AgentWaiting {
			g.state = AgentConnected // the next query shows whether it still is
		}
		ctx, cancel := context.WithCancel(o.ctx)
		left := make(chan struct{})
		g.leave, g.left = cancel, left
		go func() {
			defer close(left)
			o.followAgent(ctx)
		}()
	case !open && g.known && g.state == AgentWaiting:
		g.state, g.known = AgentLost, false
	case !open && g.leave != nil:
		g.leave()
		g.leave = nil
		if changed = g.state == AgentConnected; changed {
			g.state = AgentLost
		}
	}
	o.mu.Unlock()
	if changed {
		o.tell(true)
	}
}

// leaveAgent ends the queries of the agent.
func (o *Owner) leaveAgent() {
	o.mu.Lock()
	left := o.guest.left
	o.mu.Unlock()
	if left != nil {
		<-left // its context has ended
	}
}

// followAgent queries the agent periodically until ctx ends.
func (o *Owner) followAgent(ctx context.Context) {
	defer o.closeAgent()
	pause := firstAgentPause
	for failures := 0; ctx.Err() == nil; {
		found, err := o.askAgent(ctx)
		switch {
		case err != nil:
			o.closeAgent()
			if failures++; failures >= maxAgentFailures && ctx.Err() == nil {
				o.setAgent(AgentConnected, AgentLost)
			}
		case found:
			failures, pause = 0, lastAgentPause
		default:
			failures = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if pause < lastAgentPause {
			pause = min(2*pause, bootAgentPause)
		}
	}
}

// askAgent tells the guest what it has to know, when nobody else uses the agent, and asks for its addresses. It reports whether there
// are any.
func (o *Owner) askAgent(ctx context.Context) (found bool, err error) {
	select {
	case o.guest.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-o.guest.turn }()
	o.mu.Lock()
	conn := o.guest.conn
	o.mu.Unlock()
	if conn == nil {
		calling, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		if conn, err = qmp.DialAgent(calling, filepath.Join(o.m.Dir, qemu.AgentSocket)); err != nil {
			return false, err
		}
		o.mu.Lock()
		o.guest.conn = conn
		o.mu.Unlock()
		if err := o.greet(ctx, conn); err != nil {
			return false, err
		}
		o.greeted(ctx)
	}
	addresses, err := queryAddresses(ctx, conn)
	if err == nil {
		o.answered(ctx, addresses)
	}
	return len(addresses) > 0, err
}

// greet tells the guest what it has to know before anything else.
func (o *Owner) greet(ctx context.Context, agent *qmp.Client) error {
	if _, err := o.thaw(ctx, agent); err != nil { // until then, an agent may reject everything else
		return err
	}
	for _, tell := range []func(context.Context, *qmp.Client) error{o.setClock, o.startGuest, o.rename} {
		if err := tell(ctx, agent); err != nil {
			return err
		}
	}
	return nil
}

// setClock sets the clock of a guest whose clock stood still.
func (o *Owner) setClock(ctx context.Context, agent *qmp.Client) error {
	if !o.Record().Owed.Clock {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	err := agent.Run(ctx, "guest-set-time", map[string]any{"time": time.Now().UnixNano()}, nil)
	if err := connectionError(err); err != nil {
		return err
	}
	if err != nil {
		o.m.Log("The clock of the guest is late: its agent does not set it: " + err.Error())
	}
	o.note(func(r *Record) { r.Owed.Clock = false })
	return nil
}

// startGuest tells a guest that was started from a template that it is a machine. Until then it has neither read its seed nor used its
// disks or its network.
func (o *Owner) startGuest(ctx context.Context, agent *qmp.Client) error {
	if !o.Record().Owed.Start {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	if err := agent.Run(ctx, "keelson-start", map[string]any{"entropy": savedmemory.NewEntropy()}, nil); err != nil {
		o.m.Log("The guest of a template does not start; retrying: " + err.Error())
		return err
	}
	Step("guest started")
	o.note(func(r *Record) { r.Owed.Start = false })
	return nil
}

// rename tells a guest that has the memory of another machine which machine it is, and connects its network.
func (o *Owner) rename(ctx context.Context, agent *qmp.Client) error {
	if !o.Record().Owed.Name {
		return nil
	}
	monitor := o.Monitor()
	if monitor == nil {
		return ErrNotOn
	}
	if err := savedmemory.Rename(ctx, agent, monitor, o.m.Address, o.m.Instance); err != nil {
		if savedmemory.IsUnusable(err) {
			o.mu.Lock()
			o.unnamed = err.Error()
			o.mu.Unlock()
			o.lookSoon()
		}
		return err
	}
	o.note(func(r *Record) { r.Owed.Name = false })
	Step("fork complete")
	return nil
}

// closeAgent closes the connection to the agent, if there is one.
func (o *Owner) closeAgent() {
	o.mu.Lock()
	conn := o.guest.conn
	o.guest.conn = nil
	o.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// greeted notes that the agent has answered. The addresses of a guest that has answered an earlier owner do not disappear meanwhile.
func (o *Owner) greeted(ctx context.Context) {
	o.mu.Lock()
	addresses := o.guest.addresses
	o.guest.known = false
	o.mu.Unlock()
	o.answered(ctx, addresses)
}

// answered notes an answer of the agent.
func (o *Owner) answered(ctx context.Context, addresses []string) {
	o.mu.Lock()
	first := o.guest.state != AgentConnected
	o.mu.Unlock()
	if first {
		o.hasBooted()
		o.m.Answered()
	}
	o.mu.Lock()
	changed := ctx.Err() == nil && (first || !slices.Equal(o.guest.addresses, addresses))
	if changed {
		o.guest.state, o.guest.addresses = AgentConnected, addresses
	}
	o.mu.Unlock()
	if changed {
		o.tell(true)
	}
}

// setAgent changes the state of the agent from one to another.
func (o *Owner) setAgent(from, to Agent) {
	o.mu.Lock()
	changed := o.guest.state == from
	if changed {
		o.guest.state = to
	}
	o.mu.Unlock()
	if changed {
		o.tell(true)
	}
}

// queryAddresses returns the addresses of the guest, none if the agent does not support the query.
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
	return Reachable(all), nil
}

// Reachable returns the reachable addresses among those that a guest reported, in canonical form, sorted. It drops zones: a zone is a
// name that the guest can choose.
func Reachable(reported []string) []string {
	var all []string
	for _, text := range reported {
		address, err := netip.ParseAddr(strings.TrimSpace(text))
		if err == nil && address.Zone() == "" && address.IsGlobalUnicast() && !siteLocal.Contains(address) {
			all = append(all, address.String())
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), MaxAddresses)]
}
