package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/network"
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
		if errors.Is(err, io.EOF) && got == b.transfer {
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
	return harness.Interleave(b.rounds(n), []string{users, ours, sockets}, func(round int, contestant string) error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
		defer cancel()
		s := b.NewSample(contestant, round, n)
		measure := func() error { return b.measureTraffic(ctx, s, groups[contestant]) }
		if contestant == sockets {
			measure = func() error { return b.measureSockets(ctx, s) }
		}
		err := measure()
		b.Say("%d machines, round %d of %d, %s: %s", n, round+1, b.rounds(n), contestant, rates(s))
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
