package host

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

const (
	// answerTimeout is how long a Pod may wait for an answer; its own timeout is usually 5 s.
	answerTimeout = 5 * time.Second
	// serverTimeout is how long one of the machine's servers may take, before the next one is asked.
	serverTimeout = 2 * time.Second
	// idleTimeout is how long a connection without questions stays.
	idleTimeout = 10 * time.Second
	// maxForwarded is how many questions wait for the machine's name servers at a time. Each Pod has a share of them, and what
	// is beyond its share is refused.
	maxForwarded = 128
	// maxQuestions is how many questions of one socket are worked on at a time. It is above what one Pod can forward, so that
	// its questions about Services never wait for name servers that are away.
	maxQuestions = maxForwarded
	// maxQuestion is how long a question by UDP may be, in bytes. A longer one is cut off.
	maxQuestion = 4096
	// maxDatagram is what every client takes by UDP, RFC 1035. A longer answer it gets by TCP.
	maxDatagram = 512
)

// names is the DNS server of the Pods (RFC 1035). It answers for the names of the cluster, and forwards other questions to the
// servers of the machine.
type names struct {
	cluster *cluster
	servers func() ([]string, error) // the machine's, each as host:port
	outside *shares                  // slots for what the servers are asked
}

// newNames returns the names of a node.
func newNames(s settings.Settings) (*names, error) {
	c, err := newCluster(s)
	return &names{
		cluster: c, servers: machineServers, outside: newShares(maxForwarded),
	}, err
}

// serveUDP answers questions until the socket is closed. Each Pod has a socket of its own, as a rule: what a Pod asks too fast
// waits or gets lost there, and does not stand in the way of others.
func (n *names) serveUDP(socket net.PacketConn) {
	slots := make(chan struct{}, maxQuestions)
	buffer := make([]byte, maxQuestion)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		question := slices.Clone(buffer[:size])
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if answer := n.answer(sender(from), "udp", question); answer != nil {
				_, _ = socket.WriteTo(answer, from) // a Pod that is gone needs none
			}
		}()
	}
}

// serveTCP answers the questions of one connection.
func (n *names) serveTCP(c net.Conn) {
	defer func() { _ = c.Close() }()
	for {
		if err := c.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
			return
		}
		question, err := readMessage(c)
		if err != nil {
			return // it has no more
		}
		answer := n.answer(sender(c.RemoteAddr()), "tcp", question)
		if answer == nil || writeMessage(c, answer) != nil {
			return
		}
	}
}

// answer returns the answer to a question of a Pod that came by udp or tcp; nil if the message is not a question.
func (n *names) answer(pod netip.Addr, network string, message []byte) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.Response {
		return nil
	}
	question, err := p.Question()
	if err != nil {
		return pack(header, nil, answers{}, dnsmessage.RCodeFormatError)
	}
	found, code, ours := n.known(ctx, pod, question)
	if !ours {
		answer, err := n.forward(ctx, pod, network, message)
		if err != nil {
			return pack(header, &question, answers{}, dnsmessage.RCodeServerFailure)
		}
		return answer
	}
	answer := pack(header, &question, found, code)
	if network == "udp" && len(answer) > maxDatagram {
		header.Truncated = true
		answer = pack(header, &question, answers{}, code)
	}
	return answer
}

// known returns what is known about a name of the cluster, or of an address in it; false if the machine's servers are to be asked.
func (n *names) known(ctx context.Context, pod netip.Addr, question dnsmessage.Question) (answers, dnsmessage.RCode, bool) {
	name := question.Name.String()
	if address, ok := parseReverse(name); ok {
		found := n.cluster.reverse(address)
		return found, dnsmessage.RCodeSuccess, found.exists
	}
	if !inCluster(name) {
		return answers{}, 0, false
	}
	found, code := n.lookUp(ctx, pod, question)
	return found, code, true
}

// lookUp returns what is known about a name of the cluster.
func (n *names) lookUp(ctx context.Context, pod netip.Addr, question dnsmessage.Question) (answers, dnsmessage.RCode) {
	found, err := n.cluster.lookUp(question.Name.String())
	switch {
	case err != nil:
		return answers{}, dnsmessage.RCodeServerFailure
	case !found.exists:
		return answers{}, dnsmessage.RCodeNameError
	case found.canonical != "":
		// Clients expect the whole chain to the address. Without the rest, the first step is still an answer.
		found.rest, _ = n.follow(ctx, pod, found.canonical, question.Type)
	}
	return found, dnsmessage.RCodeSuccess
}

// follow asks the machine's servers about the name that another one stands for.
func (n *names) follow(ctx context.Context, pod netip.Addr, name string, kind dnsmessage.Type) ([]dnsmessage.Resource, error) {
	target, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	ask := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: target, Type: kind, Class: dnsmessage.ClassINET}},
	}
	message, err := ask.Pack()
	if err != nil {
		return nil, err
	}
	answer, err := n.forward(ctx, pod, "tcp", message)
	if err != nil {
		return nil, err
	}
	var said dnsmessage.Message
	if err := said.Unpack(answer); err != nil {
		return nil, err
	}
	return said.Answers, nil
}

// errTooMany is why a question is not passed on.
var errTooMany = errors.New("too many questions wait for the machine's name servers, of this Pod or of all")

// forward returns what the first of the machine's servers says that says anything, to a question of a Pod.
func (n *names) forward(ctx context.Context, pod netip.Addr, network string, message []byte) ([]byte, error) {
	if !n.outside.take(pod) {
		return nil, errTooMany
	}
	defer n.outside.give(pod)
	servers, err := n.servers()
	if err != nil {
		return nil, err
	}
	errs := []error{errors.New("no name server has answered")}
	for _, server := range servers {
		answer, err := exchange(ctx, network, server, message)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// exchange asks one server.
func exchange(ctx context.Context, network, server string, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if network == "tcp" {
		if err := writeMessage(c, message); err != nil {
			return nil, err
		}
		return readMessage(c)
	}
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	buffer := make([]byte, 1<<16)
	for {
		size, err := c.Read(buffer)
		if err != nil {
			return nil, err
		}
		if size >= 2 && [2]byte(buffer) == [2]byte(message) { // the answer to this question
			return buffer[:size], nil
		}
	}
}

// By TCP each message has its length before it.

func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeMessage(w io.Writer, message []byte) error {
	if len(message) >= 1<<16 {
		return fmt.Errorf("a message of %d bytes is too long", len(message))
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// machineServers returns the name servers of this machine, as host:port.
func machineServers() ([]string, error) {
	file, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseServers(file)
}

// parseServers reads the name servers from a resolv.conf(5). Without any it is the one on loopback.
func parseServers(r io.Reader) ([]string, error) {
	var servers []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(address, 53).String())
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1:53"}
	}
	return servers, lines.Err()
}
