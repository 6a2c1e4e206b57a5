package client

import (
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

	"github.com/coder/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxFailure is the largest response to a refused request that is read, in bytes.
const maxFailure = 64 << 10

// ErrNotOffered means that the cluster does not have the access API.
var ErrNotOffered = errors.New("this cluster does not offer access to machines through its API: nobody serves " + Group + ", which needs keelson up, or the kind VirtualMachine of an installation")

// Dial opens a WebSocket to a subresource of a VirtualMachine: Console, PortForward or Screen. It offers the subprotocols. The
// context limits the attempt, not the connection. The error is an *errors.StatusError of apimachinery if the server has
// refused the request, or wraps ErrNotOffered.
func Dial(ctx context.Context, config *rest.Config, namespace, name, subresource string, query url.Values, protocols ...string) (*websocket.Conn, error) {
	client, target, err := prepare(config, namespace, name, subresource, query)
	if err != nil {
		return nil, err
	}
	refused := &refusals{inner: client.Transport}
	client.Transport = refused
	conn, _, err := websocket.Dial(ctx, target.String(), &websocket.DialOptions{HTTPClient: client, Subprotocols: protocols}) //nolint:bodyclose // it is the connection's
	if refused.status != nil {
		return nil, refused.status.err(name, subresource)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target.Host, err)
	}
	conn.SetReadLimit(MaxMessage)
	return conn, nil
}

// DialPort opens a connection to a TCP port of a guest. The context limits the attempt, not the connection.
func DialPort(ctx context.Context, config *rest.Config, namespace, name string, port uint16) (*PortConn, error) {
	query := url.Values{ParameterPort: {strconv.Itoa(int(port))}}
	socket, err := Dial(ctx, config, namespace, name, PortForward, query, HalfClose)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	conn := websocket.NetConn(ctx, socket, websocket.MessageBinary)
	return &PortConn{Conn: conn, end: func() error { return socket.Write(ctx, websocket.MessageText, nil) }}, nil
}

// PortConn is a connection to a port of a guest.
type PortConn struct {
	net.Conn
	end func() error
}

// CloseWrite says to the guest that nothing follows. Nothing may be written after it.
func (c *PortConn) CloseWrite() error { return c.end() }

// ReadLog returns the log of the serial console. A negative tail means all of it. With follow, it continues until the
// context ends. Errors are as those of Dial.
func ReadLog(ctx context.Context, config *rest.Config, namespace, name string, tail int, follow bool) (io.ReadCloser, error) {
	query := url.Values{}
	if tail >= 0 {
		query.Set(ParameterTail, strconv.Itoa(tail))
	}
	if follow {
		query.Set(ParameterFollow, "true")
	}
	return get(ctx, config, namespace, name, Log, query)
}

// ReadScreenshot returns what the display of a machine shows, as PNG. Errors are as those of Dial.
func ReadScreenshot(ctx context.Context, config *rest.Config, namespace, name string) (io.ReadCloser, error) {
	return get(ctx, config, namespace, name, Screenshot, nil)
}

// get returns the body of a response that is not a WebSocket.
func get(ctx context.Context, config *rest.Config, namespace, name, subresource string, query url.Values) (io.ReadCloser, error) {
	client, target, err := prepare(config, namespace, name, subresource, query)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, readRefusal(response).err(name, subresource)
	}
	return response.Body, nil
}

// prepare returns an HTTP client with the credentials of config, and the URL of a subresource.
func prepare(config *rest.Config, namespace, name, subresource string, query url.Values) (*http.Client, *url.URL, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // a session has none
	// WebSockets need HTTP/1.1.
	config.NextProtos = []string{"http/1.1"}
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("the server of the kubeconfig: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", target.Host, err)
	}
	target = target.JoinPath("apis", Group, Version, "namespaces", namespace, Resource, name, subresource)
	target.RawQuery = query.Encode()
	return client, target, nil
}

// refusals is a transport that keeps the response to a request that was not upgraded.
type refusals struct {
	inner  http.RoundTripper
	status *refusal
}

// RoundTrip implements http.RoundTripper.
func (r *refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.inner.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		r.status = readRefusal(response)
		response.Body = io.NopCloser(bytes.NewReader(nil))
	}
	return response, err
}

// refusal is the response to a request that was not accepted.
type refusal struct {
	code int
	body []byte
}

func readRefusal(response *http.Response) *refusal {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxFailure)) // what is there may still be a Status
	_ = response.Body.Close()                                        // it was only read
	return &refusal{code: response.StatusCode, body: body}
}

// err returns the error for the subresource of a machine.
func (r *refusal) err(name, subresource string) error {
	var status metav1.Status
	isStatus := json.Unmarshal(r.body, &status) == nil && status.Kind == "Status"
	if r.code == http.StatusNotFound && (!isStatus || status.Details == nil || status.Details.Name == "") {
		return ErrNotOffered // kube-apiserver does not know the path
	}
	if isStatus {
		return &apierrors.StatusError{ErrStatus: status}
	}
	message := string(bytes.TrimSpace(r.body))
	if r.code == http.StatusServiceUnavailable {
		return apierrors.NewServiceUnavailable("the manager, which serves the access API, does not answer: " + message)
	}
	resource := schema.GroupResource{Group: Group, Resource: Resource + "/" + subresource}
	return apierrors.NewGenericServerResponse(r.code, "get", resource, name, message, 0, true)
}
