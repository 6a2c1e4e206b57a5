package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Claims are networks of this machine that this program uses or is about to use. Between the choice of a network and
// the route to it, only the claim shows other programs that it is taken. Claims end with the program, however it ends, and apply to the
// network namespace that has its routes: they are abstract sockets. The zero value has no claims. It is for one goroutine at a time.
type Claims struct {
	// Scope is empty for the networks of the machine. Claims of different scopes do not meet, such as those of tests.
	Scope string

	held map[netip.Prefix]net.Listener
}

// Release gives all networks up.
func (c *Claims) Release() {
	for network := range c.held {
		c.giveUp(network)
	}
}

func (c *Claims) giveUp(network netip.Prefix) {
	_ = c.held[network].Close() // it has no connections
	delete(c.held, network)
}

// take claims a network, and reports whether it is ours now. It waits up to waitTimeout for a claim of another program to end.
func (c *Claims) take(network netip.Prefix, waitTimeout time.Duration) (bool, error) {
	if c.held[network] != nil {
		return true, nil
	}
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(5 * time.Millisecond) {
		// An abstract address of unix(7): one socket can have it, and no file is left of it.
		socket, err := net.Listen("unix", "@keelson.dev/network/"+c.Scope+network.String())
		switch {
		case err == nil:
			if c.held == nil {
				c.held = map[netip.Prefix]net.Listener{}
			}
			c.held[network] = socket
			return true, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return false, fmt.Errorf("claim the network %s: %w", network, err)
		case !time.Now().Before(deadline):
			return false, nil
		}
	}
}

// keptTimeout is how long a network that was ours before may be claimed: a run of ours that was killed gives it up when
// it gives up the data directory, and perhaps a moment later.
const keptTimeout = time.Second

// choose claims the first of the candidates that is neither in use, as the function tells, nor claimed by others. The kept
// one, if any, was ours before.
func (c *Claims) choose(kept netip.Prefix, candidates []netip.Prefix, used func() ([]netip.Prefix, error)) (netip.Prefix, error) {
	now, err := used()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, candidate := range candidates {
		if overlaps(candidate, now) {
			continue
		}
		var waitTimeout time.Duration
		if candidate == kept {
			waitTimeout = keptTimeout
		}
		taken, err := c.take(candidate, waitTimeout)
		if err != nil {
			return netip.Prefix{}, err
		}
		if !taken {
			continue
		}
		// Another program may have claimed it before we looked, and replaced the claim by a route since.
		if now, err = used(); err != nil {
			return netip.Prefix{}, err
		}
		if !overlaps(candidate, now) {
			return candidate, nil
		}
		c.giveUp(candidate)
	}
	return netip.Prefix{}, fmt.Errorf("no free network from %s to %s: this machine has routes to all of them, or other nodes claim them",
		ownNetwork(0), ownNetwork(ownNetworks-1))
}
