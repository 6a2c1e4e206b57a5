package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// channels is the subprotocol of port forwarding: each message begins with the number of its channel, and the first message of a
	// channel of the server is the port, in two bytes.
	channels                  = "v4.channel.k8s.io"
	dataChannel, errorChannel = 0, 1
	// maxForwarded limits a message of the API server.
	maxForwarded = 1 << 20
	// forwardBlock is the size of the messages to it.
	forwardBlock = 32 << 10
)

// pods makes the requests for subresources of Pods, which the client of the driver cannot make.
type pods struct {
	rest rest.Interface
	http *http.Client
}

func newPods(config *rest.Config) (*pods, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	config.QPS, config.Burst = -1, 0 // users cause the requests
	// The caller limits the attempt, and nothing the connection. What wraps responses would hide that they are one.
	config.Timeout, config.WrapTransport = 0, nil
	config.NextProtos = []string{"http/1.1"}      // a WebSocket is a connection of its own
	httpClient, err := rest.HTTPClientFor(config) //nolint:contextcheck // it makes no request
	if err != nil {
		return nil, err
	}
	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	return &pods{rest: client, http: httpClient}, err
}

// forward connects to a port of a Pod, as kubectl port-forward does.
func (p *pods) forward(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error) {
	to := p.rest.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").
		Param("ports", strconv.Itoa(int(port))).URL()
	socket, response, err := websocket.Dial(ctx, to.String(), &websocket.DialOptions{
		HTTPClient: p.http, Subprotocols: []string{channels}, CompressionMode: websocket.CompressionDisabled,
	})
	if response != nil && response.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("the manager may not get and create pods/portforward in the namespace %s; see docs/install-pods.md", pod.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("forward a port of the Pod %s: %w", pod.Name, err)
	}
	socket.SetReadLimit(maxForwarded)
	return &forwarded{end: end(pod.Name), socket: socket}, nil
}

// end is what a connection with a Pod has of net.Conn besides the data: the name of the Pod as address, and no deadlines.
type end string

// LocalAddr implements net.Conn.
func (e end) LocalAddr() net.Addr { return e }

// RemoteAddr implements net.Conn.
func (e end) RemoteAddr() net.Addr { return e }

// SetDeadline implements net.Conn.
func (e end) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (e end) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (e end) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// Network implements net.Addr.
func (end) Network() string { return "pod" }

// String implements net.Addr.
func (e end) String() string { return string(e) }

// forwarded is a forwarded connection.
type forwarded struct {
	end
	socket *websocket.Conn
	// rest is the unread part of the last message.
	rest io.Reader
	// begun are the channels that have sent their port.
	begun [2]bool
}

// Read implements io.Reader.
func (f *forwarded) Read(into []byte) (int, error) {
	for {
		if f.rest != nil {
			n, err := f.rest.Read(into)
			if errors.Is(err, io.EOF) {
				f.rest, err = nil, nil
			}
			if n > 0 || err != nil {
				return n, err
			}
			continue
		}
		_, message, err := f.socket.Reader(context.Background())
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				err = io.EOF
			}
			return 0, err
		}
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); err != nil || channel[0] > errorChannel {
			return 0, errors.Join(errors.New("the API server does not speak "+channels), err)
		}
		switch {
		case !f.begun[channel[0]]:
			f.begun[channel[0]] = true
			if _, err := io.Copy(io.Discard, message); err != nil {
				return 0, err
			}
		case channel[0] == errorChannel:
			text, err := io.ReadAll(io.LimitReader(message, maxRefusal))
			return 0, errors.Join(errors.New(string(text)), err)
		default:
			f.rest = message
		}
	}
}

// Write implements io.Writer.
func (f *forwarded) Write(data []byte) (written int, err error) {
	block := make([]byte, 0, 1+min(len(data), forwardBlock))
	for len(data) > 0 {
		n := min(len(data), forwardBlock)
		block = append(append(block[:0], dataChannel), data[:n]...)
		if err := f.socket.Write(context.Background(), websocket.MessageBinary, block); err != nil {
			return written, err
		}
		data, written = data[n:], written+n
	}
	return written, nil
}

// Close implements io.Closer.
func (f *forwarded) Close() error { return f.socket.CloseNow() }
