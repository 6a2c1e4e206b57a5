package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// tunnelIdle is how long a tunnel is kept for the next connection. It is longer than the default period of readiness probes.
	tunnelIdle = 30 * time.Second
	// tunnelPing is how long a tunnel may be silent before it is checked, and how long the answer may take.
	tunnelPing = 15 * time.Second
	// tunnelTimeout limits an attempt to open one.
	tunnelTimeout = 10 * time.Second
	// maxRefusal limits the message of a launcher.
	maxRefusal = 512
)

// launchers connects to the launchers of machines through the port forwarding of the API server: so it needs no way to the addresses of
// Pods, which NetworkPolicies may forbid, and nothing listens for other tenants. A machine in use has one tunnel; each connection is
// an HTTP/2 stream in it, which both sides can end, unlike a forwarded connection.
type launchers struct {
	forward func(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error)
	client  *http.Client
}

// podKey is the key of the Pod of a request in its context.
type podKey struct{}

func newLaunchers(forward func(context.Context, *corev1.Pod, int32) (net.Conn, error)) *launchers {
	l := &launchers{forward: forward}
	transport := &http.Transport{
		DialContext: l.dial, IdleConnTimeout: tunnelIdle, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{SendPingTimeout: tunnelPing, PingTimeout: tunnelPing},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	l.client = &http.Client{Transport: transport}
	return l
}

// dial opens the tunnel for a request.
func (l *launchers) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	pod, ok := ctx.Value(podKey{}).(*corev1.Pod)
	if !ok {
		return nil, errors.New("a request without its Pod")
	}
	definition, readable := definitionOf(pod)
	if !readable {
		return nil, errors.New("its Pod is not one of this driver")
	}
	// Transports do not pass the end of the request on: others may use the tunnel.
	ctx, cancel := context.WithTimeout(ctx, tunnelTimeout)
	defer cancel()
	return l.forward(ctx, pod, definition.ReadyPort)
}

func (l *launchers) close() { l.client.CloseIdleConnections() }

// connect begins a request whose bodies are the directions of a connection. The context limits the attempt.
func (l *launchers) connect(ctx context.Context, pod *corev1.Pod, token, path string) (*stream, error) {
	running, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), podKey{}, pod))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	output, input := io.Pipe()
	// The UID, so that another Pod gets another tunnel.
	request, err := http.NewRequestWithContext(running, http.MethodPost, "http://"+string(pod.UID)+path, output)
	if err != nil {
		cancel()
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := l.client.Do(request)
	switch {
	case err != nil:
	case response.StatusCode != http.StatusOK:
		err = refusalOf(response)
	case stop():
		return &stream{ReadCloser: response.Body, input: input, cancel: cancel, end: end(pod.Name)}, nil
	default:
		_ = response.Body.Close() // too late
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	cancel()
	_ = input.Close() // nobody reads it
	return nil, err
}

// refusal is why the guest does not accept a connection.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// oldLauncher is the error of a launcher that does not know a request.
type oldLauncher struct{}

// Error implements error.
func (oldLauncher) Error() string {
	return "its launcher is of an earlier version; update --vm-launcher-image if it names an old image, and restart the machine"
}

// refusalOf returns why a launcher does not connect.
func refusalOf(response *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // it is only a message
	_ = response.Body.Close()
	message := strings.TrimSpace(string(raw))
	switch response.StatusCode {
	case http.StatusBadGateway:
		return refusal(message)
	case http.StatusNotFound, http.StatusForbidden:
		return oldLauncher{}
	}
	return fmt.Errorf("its launcher says: %s (%s)", message, response.Status)
}

// stream is a connection through a launcher.
type stream struct {
	io.ReadCloser
	input  *io.PipeWriter
	cancel context.CancelFunc
	end
}

// Write implements io.Writer.
func (s *stream) Write(data []byte) (int, error) { return s.input.Write(data) }

// CloseWrite ends this side of the connection only.
func (s *stream) CloseWrite() error { return s.input.Close() }

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cancel()
	return errors.Join(s.input.Close(), s.ReadCloser.Close())
}

// Dial implements backend.Dialer through the launcher.
func (d *Driver) Dial(ctx context.Context, id backend.Identity, port uint16) (net.Conn, error) {
	path := launcher.DialPath + "?" + url.Values{launcher.PortParameter: {strconv.Itoa(int(port))}}.Encode()
	return d.connect(ctx, id, fmt.Sprintf("port %d", port), path)
}

// Console implements backend.Consoler. QEMU serves one connection at a time, the next ones wait.
func (d *Driver) Console(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	return d.connect(ctx, id, "the console", launcher.ConsolePath)
}

// Pause implements backend.Driver. The record comes last, as in Resume: a call that was cut off is repeated.
func (d *Driver) Pause(ctx context.Context, id backend.Identity) error {
	return d.halt(ctx, id, launcher.PausePath, true)
}

// Resume implements backend.Driver.
func (d *Driver) Resume(ctx context.Context, id backend.Identity) error {
	return d.halt(ctx, id, launcher.ResumePath, false)
}

// halt makes the launcher of a machine halt its processors or let them run, and records that.
func (d *Driver) halt(ctx context.Context, id backend.Identity, path string, paused bool) error {
	secret, rec, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	_, pod, err := d.seen(ctx, id)
	if err != nil {
		return err
	}
	conn, err := d.connect(ctx, id, "the launcher", path)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	step("processors changed")
	rec.PausedRun = ""
	if paused {
		rec.PausedRun = pod.Annotations[annotationRun]
	}
	return d.writeRecord(ctx, secret, rec, seedOf(secret))
}

// connect connects to what of a machine. Only a refusal of the guest is not an ErrUnavailable.
func (d *Driver) connect(ctx context.Context, id backend.Identity, what, path string) (*stream, error) {
	secret, pod, err := d.seen(ctx, id)
	if err != nil {
		return nil, err
	}
	unavailable := func(err error) error {
		return fmt.Errorf("connect to %s of machine %s: %w: %w", what, id.UID, backend.ErrUnavailable, err)
	}
	if pod == nil || !isOn(pod) {
		return nil, unavailable(errors.New("it is off"))
	}
	if secret == nil {
		return nil, unavailable(errors.New("its Secret was deleted, and will be written again"))
	}
	conn, err := d.launchers.connect(ctx, pod, string(secret.Data[launcher.TokenFile]), path)
	switch {
	case errors.As(err, new(refusal)):
		return nil, fmt.Errorf("connect to %s of machine %s: %w", what, id.UID, err)
	case err != nil:
		return nil, unavailable(err)
	}
	return conn, nil
}

// seen returns the Secret and the Pod of a machine that the watches have; one of them may be nil.
func (d *Driver) seen(ctx context.Context, id backend.Identity) (*corev1.Secret, *corev1.Pod, error) {
	if err := d.check(); err != nil {
		return nil, nil, err
	}
	secret, err := d.readSecret(ctx, d.cache, id)
	if err != nil {
		return nil, nil, err
	}
	pod, err := readPod(ctx, d.cache, id)
	if err == nil && secret == nil && pod == nil {
		err = fmt.Errorf("%w: %s", backend.ErrNotFound, objectName(id.UID))
	}
	return secret, pod, err
}

// isOn reports whether the container of a Pod runs, as far as the API server knows.
func isOn(pod *corev1.Pod) bool {
	status := machineStatus(pod)
	return !isOver(pod) && status != nil && status.State.Running != nil
}
