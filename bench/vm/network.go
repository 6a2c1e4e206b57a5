package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/network"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// The contestants for networks. Their machines are bare QEMUs with the same arguments besides the network.
const (
	// ours is the process of a network, confined as the manager starts it.
	ours = "switch"
	// users is QEMU's user network; guests reach each other through forwarded ports of the host.
	users = "user network"
	// sockets are two of the host, without a guest.
	sockets = "two host sockets"
)

// connected are machines on networks, whose guests carry data.
type connected struct {
	*fleet
	// published are the addresses of the host that lead to the servicePorts of each machine.
	published []map[uint16]string
	// address returns where a guest reaches a port of the i-th machine.
	address func(i int, port uint16) string
	client  *network.Client // of the switch
}

// Published ports are below those that the kernel gives to outgoing connections, which nobody can be kept from.
const firstPort, lastPort = 20000, 32000

// freePorts returns addresses of loopback that nobody listens at, and no others the next time.
func (b *bench) freePorts(n int) (free []netip.AddrPort, err error) {
	if b.port == 0 {
		b.port = firstPort + os.Getpid()%(lastPort-firstPort)/2 // apart from another run
	}
	for len(free) < n {
		if b.port++; b.port > lastPort {
			return nil, errors.New("all ports for machines have been used")
		}
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(b.port))
		listener, err := net.Listen("tcp", address.String())
		if err != nil {
			continue // taken
		}
		if err := listener.Close(); err != nil {
			return nil, err
		}
		free = append(free, address)
	}
	return free, nil
}

// connect starts n machines on the network of a contestant.
func (b *bench) connect(contestant string, n int) (*connected, error) {
	free, err := b.freePorts(n * len(servicePorts))
	if err != nil {
		return nil, err
	}
	c := &connected{}
	for i := range n {
		published := map[uint16]string{}
		for at, port := range servicePorts {
			published[port] = free[i*len(servicePorts)+at].String()
		}
		c.published = append(c.published, published)
	}
	machines := *b.networked
	var prepare func(dir string) error
	if contestant == ours {
		machines.card = func(int) string { return "stream,id=net,server=on,addr.type=unix,addr.path=" + cardSocket }
		prepare = func(dir string) error { return b.prepareSwitch(c, dir) }
		_, machines.beside = network.Confined(".")
	} else {
		machines.card = func(i int) string {
			card := userCard
			for _, port := range servicePorts {
				card += fmt.Sprintf(",hostfwd=tcp:%s-:%d", c.published[i][port], port)
			}
			return card
		}
		c.address = func(i int, port uint16) string {
			return strings.Replace(c.published[i][port], "127.0.0.1:", "10.0.2.2 ", 1)
		}
	}
	c.fleet, err = machines.start(n, prepare)
	return c, err
}

// cardSocket is where QEMU waits for the switch, in the folder of its machine.
const cardSocket = "card.sock"

// prepareSwitch configures the switch of the machines in a directory.
func (b *bench) prepareSwitch(c *connected, dir string) error {
	config := network.Config{Namespace: "bench", Prefix: netip.MustParsePrefix("10.77.1.0/24"), Egress: network.Egress{Mode: network.EgressNone}}
	address := config.Gateway()
	var addresses []netip.Addr
	for i := range c.published {
		address = address.Next()
		addresses = append(addresses, address)
		machine := network.Machine{
			UID: fmt.Sprintf("bare-%d", i), Name: fmt.Sprintf("bare-%d", i), MAC: macOf(i), Address: address,
			Socket: filepath.Join(dir, fmt.Sprint(i), cardSocket),
		}
		for _, port := range servicePorts {
			machine.Ports = append(machine.Ports, network.Forward{
				Name: fmt.Sprintf("port-%d", port), Protocol: network.TCP, Host: netip.MustParseAddrPort(c.published[i][port]), GuestPort: port,
			})
		}
		config.Machines = append(config.Machines, machine)
	}
	c.client = network.NewClient(dir)
	c.address = func(i int, port uint16) string { return fmt.Sprintf("%s %d", addresses[i], port) }
	program, err := filepath.Abs(b.Binary)
	if err != nil {
		return err
	}
	return errors.Join(network.WriteConfig(dir, config), os.Symlink(program, filepath.Join(dir, sandbox.Name)))
}

// awaitOnline waits until all guests answer through their agents and have an address. It sets the figures "answers",
// "online", "address", which is the time between these, and "online busy", the processor time of QEMU and the switch until then.
func (c *connected) awaitOnline(ctx context.Context, s *harness.Sample) error {
	ready, times := make([]time.Duration, c.size), make([]time.Duration, c.size)
	group, ctx := errgroup.WithContext(ctx)
	for i := range c.size {
		folder := c.folder(i)
		group.Go(func() error {
			err := firstAnswer(ctx, filepath.Join(folder, agentSocket), `{"execute":"guest-ping"}`+"\n")
			ready[i] = time.Since(c.began)
			if err == nil {
				err = harness.Until(ctx, 2*time.Millisecond, func() error {
					log, err := os.ReadFile(filepath.Join(folder, "serial.log"))
					if err == nil && !strings.Contains(string(log), online) {
						err = errors.New("it has no address")
					}
					return err
				})
			}
			times[i] = time.Since(c.began)
			return explain("the guest", err, folder)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.SetTimes("answers", ready...)
	s.SetTimes("online", times...)
	s.SetTimes("address", slices.Max(times)-slices.Max(ready))
	var pids []int
	for _, name := range []string{pidFile, besideFile} {
		some, err := readPIDs(filepath.Join(c.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // not all have something beside them
			return err
		}
		pids = append(pids, some...)
	}
	s.Set("online busy", harness.ProcessorTime(pids...))
	return nil
}

// measureNetworks measures the boot of machines, and then the traffic of groups of machines that stay.
func (b *bench) measureNetworks(ctx context.Context) error {
	for round := range b.Rounds {
		if err := b.measureBoots(ctx, round); err != nil {
			return fmt.Errorf("boot on a network, round %d: %w", round+1, err)
		}
	}
	for _, n := range *b.traffic {
		if err := b.measureGroups(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// measureBoots boots a machine on each network at the same time, so that other load is on both alike. They are started in
// turns.
func (b *bench) measureBoots(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	contestants := []string{users, ours}
	samples := map[string]*harness.Sample{}
	for i := range contestants {
		contestant := contestants[(round+i)%len(contestants)]
		s := b.NewSample(contestant, round, aloneSize)
		samples[contestant] = s
		c, err := b.connect(contestant, aloneSize)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		group.Go(func() (err error) {
			defer func() { err = errors.Join(err, c.stop()) }()
			return c.awaitOnline(ctx, s)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, contestant := range contestants {
		s := samples[contestant]
		b.Say("Boot on a network, round %d of %d, %s: its agent answers after %s, online after %s", round+1, b.Rounds, contestant,
			harness.Milliseconds(s.Figures["answers"][0]), harness.Milliseconds(s.Figures["online"][0]))
	}
	return nil
}

func (b *bench) reportNetworks() {
	b.reportBoots()
	for _, n := range *b.traffic {
		for _, figure := range traffics[:3] {
			b.RatioTarget(fmt.Sprintf("%d machines: %s, in times of the user network", n, figure), "≥", trafficLimit,
				b.Samples.Ratios(ours, users, n, figure, harness.Last))
		}
		b.Printf("\n## Traffic of %d machines, %d MiB for each of %d at the same time\n", n, b.transfer>>20, n/2)
		var columns []harness.Column
		for _, figure := range traffics {
			columns = append(columns, harness.Column{Header: figure, Figure: figure, Stat: harness.Last, Format: megabytesPerSecond})
		}
		b.SampleTable(n, []string{users, ours, sockets}, columns...)
	}
}

func (b *bench) reportBoots() {
	took, least := b.Samples.Of(ours, aloneSize).Median("online", harness.Last), b.Samples.Of(users, aloneSize).Median("online", harness.Last)
	if least == 0 {
		return
	}
	more := func(figure string) harness.Spread {
		return b.Samples.Differences(ours, users, aloneSize, figure, harness.Last)
	}
	online := more("online")
	b.Target("1 machine on a network: online, above the user network", "≤", onlineLimit, 1000*online.Median, " ms",
		fmt.Sprintf("rounds from %.0f to %.0f ms, ratio %.3f; %s, and %s; processor time above it %.0f ms, from the answer of the agent to the address %.0f ms",
			1000*online.Min, 1000*online.Max, b.Samples.Ratios(ours, users, aloneSize, "online", harness.Last).Median,
			harness.Milliseconds(took), harness.Milliseconds(least), 1000*more("online busy").Median, 1000*more("address").Median))
	b.Printf("\n## Boot on a network\n")
	b.SampleTable(aloneSize, []string{users, ours},
		harness.Column{Header: "the agent answers", Figure: "answers", Stat: harness.Last, Format: harness.Milliseconds},
		harness.Column{Header: "and then has an address", Figure: "address", Stat: harness.Last, Format: harness.Milliseconds},
		harness.Column{Header: "online", Figure: "online", Stat: harness.Last, Format: harness.Milliseconds},
		harness.Column{Header: "× user network", Figure: "online", Stat: harness.Last, Over: users},
		harness.Column{Header: "processor time", Figure: "online busy", Stat: harness.Last, Format: harness.Milliseconds})
}
