package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrUnavailable means that the switch does not answer: it does not run, or not yet.
	ErrUnavailable = errors.New("the switch of the network does not answer")
	// ErrInvalid means that the switch has refused a configuration. It keeps the one it has.
	ErrInvalid = errors.New("the configuration of the network is invalid")
	// ErrRefused means that nothing at the machine's port accepts connections, or the machine may not be reached.
	ErrRefused = errors.New("connection refused")
)

// requestTimeout bounds each request but Dial's, whose caller decides.
const requestTimeout = 10 * time.Second

// Client talks to a switch through its control socket. It has no state and no connections of its own, and may be used
// concurrently.
type Client struct{ socket string }

// NewClient returns a client of the switch with this directory, which need not run.
func NewClient(directory string) *Client { return &Client{socket: SocketPath(directory)} }

// Apply makes the switch serve this configuration, which it also stores. Machines, forwards and connections that are in
// both the old and the new one are not disturbed; connections that are no longer allowed are closed. Calls must not
// overlap. Errors are ErrInvalid and ErrUnavailable.
func (c *Client) Apply(ctx context.Context, config Config) error {
	return c.request(ctx, http.MethodPut, "/config", config, nil)
}

// Status returns the state of the switch.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.request(ctx, http.MethodGet, "/status", nil, &status)
	return status, err
}

// Dial opens a connection to a port of a machine. For UDP each Write is a datagram and each Read returns one. Errors are
// ErrRefused, ErrUnavailable, and that of the context.
func (c *Client) Dial(ctx context.Context, uid string, protocol Protocol, port uint16) (net.Conn, error) {
	return dialSwitch(ctx, c.socket, "/dial", url.Values{
		"uid": {uid}, "protocol": {string(protocol)}, "port": {strconv.Itoa(int(port))},
	}, protocol)
}

func (c *Client) request(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return requestSwitch(ctx, c.socket, method, path, body, answer)
}

// requestSwitch makes one request to the switch at a control socket, on a connection of its own.
func requestSwitch(ctx context.Context, socket, method, path string, body, answer any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://switch"+path, content)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := responseError(response); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// dialSwitch asks the switch at a control socket for a connection, which the connection to the socket then becomes.
func dialSwitch(ctx context.Context, socket, path string, query url.Values, protocol Protocol) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	// The context ends the request, but not the connection that comes of it.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	reader, err := upgrade(conn, path+"?"+query.Encode())
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	stream := &bufferedConn{Conn: conn, reader: reader}
	if protocol == UDP {
		return newDatagrams(stream), nil
	}
	return stream, nil
}

// upgrade sends the request and reads the answer to it.
func upgrade(conn net.Conn, target string) (*bufio.Reader, error) {
	_, err := io.WriteString(conn, "POST "+target+" HTTP/1.1\r\nHost: switch\r\nConnection: Upgrade\r\nUpgrade: "+upgradeName+"\r\n\r\n")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	reader := bufio.NewReaderSize(conn, 4<<10)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return reader, nil
	}
	defer func() { _ = response.Body.Close() }()
	if err := responseError(response); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: unexpected answer %s", ErrUnavailable, response.Status)
}

// upgradeName is the protocol that connections of the control socket are upgraded to: the bytes of the connection.
const upgradeName = "keelson-switch"

// responseError returns the error that a response stands for, or nil.
func responseError(response *http.Response) error {
	if response.StatusCode < 300 {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10)) // what was read is the best there is
	said := strings.TrimSpace(string(text))
	switch response.StatusCode {
	case http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %s", ErrInvalid, said)
	case http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway:
		return fmt.Errorf("%w: %s", ErrRefused, said)
	default:
		return fmt.Errorf("%w: %s: %s", ErrUnavailable, response.Status, said)
	}
}

// bufferedConn is a connection whose first bytes may have been read already.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) {
	if c.reader != nil && c.reader.Buffered() > 0 {
		return c.reader.Read(b)
	}
	return c.Conn.Read(b)
}

// CloseWrite says to the other side that nothing follows.
func (c *bufferedConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }
