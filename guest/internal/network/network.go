package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
)

// tryTimeout is how long a DHCP server has to answer before it is asked again.
const tryTimeout = 2 * time.Second

// pauses between rounds of asking, the last one for ever.
var pauses = []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute}

// Network configures interfaces.
type Network struct {
	// Printf tells a person what happened.
	Printf func(format string, args ...any)
	// Hostname is what the guest calls itself when it asks for an address; empty for
	// nothing.
	Hostname string
	// Ready is called when an interface has got its settings, the first time and when
	// they change.
	Ready func(name string, settings Settings)

	resolver resolver
}

// New returns a network that writes name servers to resolvFile.
func New(resolvFile string) *Network {
	return &Network{resolver: resolver{file: resolvFile, byInterface: map[string]Settings{}}}
}

// Keep configures an interface and keeps it so until ctx ends: by what the seed says,
// or with DHCP if static is nil.
func (n *Network) Keep(ctx context.Context, name string, static *Settings) error {
	link, err := up(name)
	if err != nil {
		return fmt.Errorf("bringing up the interface: %w", err)
	}
	if static != nil {
		return n.use(link, *static, Settings{}, "by the seed")
	}
	awaitCarrier(ctx, name)
	var current Settings
	for attempt := 0; ctx.Err() == nil; attempt++ {
		got, raw, err := n.ask(ctx, name)
		if err != nil {
			if attempt == 0 {
				n.Printf("%s: no answer to DHCP yet: %v", name, err)
			}
			wait(ctx, pauses[min(attempt, len(pauses)-1)])
			continue
		}
		if err := n.use(link, got.Settings, current, "by DHCP"); err != nil {
			n.Printf("%s: %v", name, err)
		}
		current = got.Settings
		n.renew(ctx, link, got, raw)
		attempt = -1
	}
	return nil
}

// awaitCarrier waits a moment until an interface is connected, so that the first
// question is not lost.
func awaitCarrier(ctx context.Context, name string) {
	for range 500 {
		carrier, err := os.ReadFile("/sys/class/net/" + name + "/carrier")
		if err != nil || string(carrier) == "1\n" || !wait(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// use applies new settings and says so.
func (n *Network) use(link netlink.Link, settings, before Settings, how string) error {
	name := link.Attrs().Name
	err := errors.Join(apply(link, settings, before), n.resolver.set(name, settings))
	for _, address := range settings.Addresses {
		n.Printf("%s has the address %s %s", name, address, how)
	}
	n.Ready(name, settings)
	return err
}

// ask gets a lease from whichever server answers first.
func (n *Network) ask(ctx context.Context, name string) (lease, *nclient4.Lease, error) {
	client, err := nclient4.New(name, nclient4.WithTimeout(tryTimeout), nclient4.WithRetry(3))
	if err != nil {
		return lease{}, nil, err
	}
	defer func() { _ = client.Close() }()
	var extra []dhcpv4.Modifier
	if n.Hostname != "" {
		extra = append(extra, dhcpv4.WithOption(dhcpv4.OptHostName(n.Hostname)))
	}
	raw, err := client.Request(ctx, extra...)
	if err != nil {
		return lease{}, nil, err
	}
	got, err := fromACK(raw.ACK)
	return got, raw, err
}

// renew keeps a lease for as long as the server extends it. It returns when the
// lease is lost; the address stays until there is another.
func (n *Network) renew(ctx context.Context, link netlink.Link, current lease, raw *nclient4.Lease) {
	name := link.Attrs().Name
	expires := time.Now().Add(current.Duration)
	pause := current.Renew
	for wait(ctx, pause) {
		again, err := extend(ctx, name, raw)
		var refused *nclient4.ErrNak
		switch {
		case err == nil:
			got, err := fromACK(again.ACK)
			if err != nil {
				return
			}
			if err := apply(link, got.Settings, current.Settings); err != nil {
				n.Printf("%s: %v", name, err)
			}
			current, raw, expires = got, again, time.Now().Add(got.Duration)
			pause = got.Renew
		case errors.As(err, &refused) || !time.Now().Before(expires):
			n.Printf("%s: the lease of the address ended: %v", name, err)
			return
		default:
			pause = nextTry(time.Until(expires))
		}
	}
}

// nextTry says when to ask again for a lease that ends in left: after half of that,
// but not more often than once a minute (RFC 2131, 4.4.5).
func nextTry(left time.Duration) time.Duration {
	return max(0, min(left, max(left/2, time.Minute)))
}

// extend asks the server that gave the lease for more time.
func extend(ctx context.Context, name string, raw *nclient4.Lease) (*nclient4.Lease, error) {
	client, err := nclient4.New(name, nclient4.WithTimeout(tryTimeout), nclient4.WithRetry(3))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	return client.Renew(ctx, raw)
}

// wait returns whether it waited so long; not if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// NeedsConfiguration tells an interface that somebody has to configure from the
// loopback and from those that programs make.
func NeedsConfiguration(i *net.Interface) bool {
	return i.Flags&net.FlagLoopback == 0 && len(i.HardwareAddr) == 6
}
