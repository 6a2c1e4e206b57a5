package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// The ports of the guests: one executes commands, one takes what it is sent, and one sends.
const (
	shellPort  = 7
	sinkPort   = 9
	sourcePort = 19
)

var servicePorts = []uint16{shellPort, sinkPort, sourcePort}

// online is what a guest writes to its console when it has an address.
const online = "the guest is online"

// services is the user data of guests that carry data; the source sends this many bytes.
func services(bytes int) string {
	return fmt.Sprintf(`#cloud-config
bootcmd:
- |
  mkdir /srv
  echo 'exec dd bs=64k iflag=fullblock of=/dev/null 2>&1' >/srv/sink
  echo 'exec dd bs=64k count=%d if=/dev/zero 2>/dev/null' >/srv/source
  nc -ll -p %d -e sh >/dev/null 2>&1 &
  nc -ll -p %d -e sh /srv/sink >/dev/null 2>&1 &
  nc -ll -p %d -e sh /srv/source >/dev/null 2>&1 &
runcmd:
- [sh, -c, 'echo %s >/dev/console']
`, bytes/block, shellPort, sinkPort, sourcePort, online)
}

// block is the unit of transfers.
const block = 64 << 10

// connected are machines on networks, whose guests carry data.
type connected struct {
	*fleet
	// published are the addresses of the host that lead to the servicePorts of each machine.
	published []map[uint16]string
	// address returns where a guest reaches a port of the i-th machine.
	address func(i int, port uint16) string
	client  *network.Client // of the switch
}

// freePorts returns addresses of loopback that nobody listens at.
func freePorts(n int) (free []netip.AddrPort, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // not before all are known
		free = append(free, netip.MustParseAddrPort(listener.Addr().String()))
	}
	return free, nil
}

// connect starts n machines on the network of a contestant.
func (b *bench) connect(contestant string, n int) (*connected, error) {
	free, err := freePorts(n * len(servicePorts))
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

// awaitOnline waits until all guests answer through their agents and have an address. It sets the figures "online" of the
// sample, and "online busy", the processor time of QEMU and the switch until then.
func (c *connected) awaitOnline(ctx context.Context, s *harness.Sample) error {
	times := make([]time.Duration, c.size)
	group, ctx := errgroup.WithContext(ctx)
	for i := range c.size {
		folder := c.folder(i)
		group.Go(func() error {
			err := firstAnswer(ctx, filepath.Join(folder, agentSocket), `{"execute":"guest-ping"}`+"\n")
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
	s.SetTimes("online", times...)
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

// execute executes a command in the guest of the i-th machine and returns its output.
func (c *connected) execute(ctx context.Context, i int, command string) (string, error) {
	conn, err := dial(ctx, c.published[i][shellPort])
	if err != nil {
		return "", err
	}
	defer closeAtEnd(ctx, conn)()
	if _, err := fmt.Fprintf(conn, "exec 2>&1; %s; exit\n", command); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return strings.TrimSpace(string(out)), err
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// closeAtEnd closes a connection when the context ends, or the function that it returns is called.
func closeAtEnd(ctx context.Context, conn net.Conn) func() {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return func() {
		stop()
		_ = conn.Close() // all was read
	}
}

// send sends bytes to the sink of a guest, which says how many it has got.
func (b *bench) send(ctx context.Context, conn net.Conn) error {
	defer closeAtEnd(ctx, conn)()
	data := make([]byte, block)
	for range b.transfer / block {
		if _, err := conn.Write(data); err != nil {
			return err
		}
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	out, err := io.ReadAll(conn)
	return errors.Join(err, b.complete(string(out)))
}

// complete checks what dd says.
func (b *bench) complete(output string) error {
	if want := fmt.Sprintf("%d+0 records in", b.transfer/block); !strings.Contains(output, want) {
		return fmt.Errorf("the guest has not got all; it says %q, and should say %q", output, want)
	}
	return nil
}

// receive reads what the source of a guest sends.
func (b *bench) receive(ctx context.Context, conn net.Conn) error {
	defer closeAtEnd(ctx, conn)()
	buffer := make([]byte, block)
	got := 0
	for {
		n, err := conn.Read(buffer)
		got += n
		if err == io.EOF && got == b.transfer {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", got, b.transfer, err)
		}
	}
}

// between has the guest of the i-th machine get all from the source of another one.
func (b *bench) between(ctx context.Context, c *connected, i, other int) error {
	out, err := c.execute(ctx, i, "nc "+c.address(other, sourcePort)+" -e dd bs=64k iflag=fullblock of=/dev/null")
	return errors.Join(err, b.complete(out))
}

// rate sets a figure to how many bytes a second n transfers carry at the same time.
func (b *bench) rate(ctx context.Context, s *harness.Sample, figure string, n int, transfer func(ctx context.Context, i int) error) error {
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range n {
		group.Go(func() error {
			err := transfer(ctx, i)
			if err == nil {
				done.Add(int64(b.transfer))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("%s: %w", figure, err)
	}
	s.Set(figure, float64(done.Load())/time.Since(began).Seconds())
	return nil
}

// measureTraffic measures all figures of a contestant once. Half of its machines use the other half.
func (b *bench) measureTraffic(ctx context.Context, s *harness.Sample, c *connected) error {
	pairs := c.size / 2
	published := func(port uint16, carry func(context.Context, net.Conn) error) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			conn, err := dial(ctx, c.published[pairs+i][port])
			if err != nil {
				return err
			}
			return carry(ctx, conn)
		}
	}
	dialed := func(port uint16, carry func(context.Context, net.Conn) error) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			conn, err := c.client.Dial(ctx, fmt.Sprintf("bare-%d", pairs+i), network.TCP, port)
			if err != nil {
				return err
			}
			return carry(ctx, conn)
		}
	}
	err := errors.Join(
		b.rate(ctx, s, guestToGuest, pairs, func(ctx context.Context, i int) error { return b.between(ctx, c, i, pairs+i) }),
		b.rate(ctx, s, toGuest, pairs, published(sinkPort, b.send)),
		b.rate(ctx, s, fromGuest, pairs, published(sourcePort, b.receive)),
	)
	if c.client != nil && err == nil {
		err = errors.Join(
			b.rate(ctx, s, dialToGuest, pairs, dialed(sinkPort, b.send)),
			b.rate(ctx, s, dialFromGuest, pairs, dialed(sourcePort, b.receive)),
		)
	}
	return err
}

// The figures of traffic.
const (
	guestToGuest  = "guest to guest"
	toGuest       = "host to guest"
	fromGuest     = "guest to host"
	dialToGuest   = "Dial, to guest"
	dialFromGuest = "Dial, from guest"
)

var traffics = []string{guestToGuest, toGuest, fromGuest, dialToGuest, dialFromGuest}

// measureSockets has two sockets of this process carry the data, as many pairs as there are of machines.
func (b *bench) measureSockets(ctx context.Context, s *harness.Sample) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // nothing is lost with it
	return b.rate(ctx, s, toGuest, s.Size/2, func(ctx context.Context, _ int) error {
		conn, err := dial(ctx, listener.Addr().String())
		if err != nil {
			return err
		}
		accepted, err := listener.Accept()
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return b.receive(ctx, accepted) })
		group.Go(func() error { return b.transmit(ctx, conn) })
		return group.Wait()
	})
}

// transmit sends all and closes the connection.
func (b *bench) transmit(ctx context.Context, conn net.Conn) error {
	defer closeAtEnd(ctx, conn)()
	data := make([]byte, block)
	for range b.transfer / block {
		if _, err := conn.Write(data); err != nil {
			return err
		}
	}
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
func (b *bench) measureBoots(ctx context.Context, round int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	defer func() { err = errors.Join(err, group.Wait()) }()
	contestants := []string{users, ours}
	for i := range contestants {
		contestant := contestants[(round+i)%len(contestants)]
		s := b.NewSample(contestant, round, aloneSize)
		c, err := b.connect(contestant, aloneSize)
		if err != nil {
			return err
		}
		group.Go(func() (err error) {
			defer func() { err = errors.Join(err, c.stop()) }()
			if err := c.awaitOnline(ctx, s); err != nil {
				return err
			}
			b.Say("Boot on a network, round %d of %d, %s: online after %s", round+1, b.Rounds, contestant,
				harness.Milliseconds(s.Figures["online"][0]))
			return nil
		})
	}
	return nil
}

// measureGroups measures the traffic of n machines on each network.
func (b *bench) measureGroups(ctx context.Context, n int) (err error) {
	groups := map[string]*connected{}
	for _, contestant := range []string{users, ours} {
		b.Say("Starting %d machines on the %s", n, contestant)
		c, err := b.connect(contestant, n)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		groups[contestant] = c
		boot, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
		err = c.awaitOnline(boot, &harness.Sample{})
		cancel()
		if err != nil {
			return err
		}
	}
	return harness.Interleave(b.Rounds, []string{users, ours, sockets}, func(round int, contestant string) error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
		defer cancel()
		s := b.NewSample(contestant, round, n)
		measure := func() error { return b.measureTraffic(ctx, s, groups[contestant]) }
		if contestant == sockets {
			measure = func() error { return b.measureSockets(ctx, s) }
		}
		err := measure()
		b.Say("%d machines, round %d of %d, %s: %s", n, round+1, b.Rounds, contestant, rates(s))
		return err
	})
}

// rates returns all figures of traffic that a sample has.
func rates(s *harness.Sample) string {
	var all []string
	for _, figure := range traffics {
		if values := s.Figures[figure]; len(values) > 0 {
			all = append(all, figure+" "+megabytesPerSecond(values[0]))
		}
	}
	return strings.Join(all, ", ")
}

// megabytesPerSecond formats a rate.
func megabytesPerSecond(bytes float64) string { return fmt.Sprintf("%.0f MB/s", bytes/1e6) }

func (b *bench) reportNetworks() {
	more := b.Samples.Differences(ours, users, aloneSize, "online", harness.Last)
	took, least := b.Samples.Of(ours, aloneSize).Median("online", harness.Last), b.Samples.Of(users, aloneSize).Median("online", harness.Last)
	if least > 0 {
		ratios := b.Samples.Ratios(ours, users, aloneSize, "online", harness.Last)
		busy := b.Samples.Differences(ours, users, aloneSize, "online busy", harness.Last)
		b.Target("1 machine on a network: online, above the user network", "≤", onlineLimit, 1000*more.Median, " ms",
			fmt.Sprintf("rounds from %.0f to %.0f ms, ratio %.3f; %s, and %s; processor time above it %.0f ms", 1000*more.Min, 1000*more.Max,
				ratios.Median, harness.Milliseconds(took), harness.Milliseconds(least), 1000*busy.Median))
	}
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
