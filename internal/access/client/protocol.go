// Package client connects to machines through the access API, which a manager serves as an aggregated API of
// kube-apiserver. It also defines the protocol, for both sides.
//
// A subresource of a VirtualMachine is at
//
//	/apis/access.cloudnative.tw/v1alpha1/namespaces/NAMESPACE/virtualmachines/NAME/SUBRESOURCE
//
// and its only method is GET. kube-apiserver authorizes the verb get of the subresource in the group
// access.cloudnative.tw before it passes the request on. A request that is refused gets a metav1.Status as JSON: 401 and
// 403 without an identity or a permission, 404 without such a machine, 409 for a machine that is not running, 429 for
// too many sessions, 501 for a driver that cannot do it, 503 for a driver or a guest that does not answer.
//
// # console
//
// The serial console, over a WebSocket. Binary messages are bytes of the serial line, in both directions; the first ones
// from the server are up to 64 KiB of earlier output. A session may have any number of viewers and has one writer:
// the newest session that asked for it. The query parameter write=false asks for a viewer. Text messages from the
// server are a Notice as JSON: the first one, before any output, says whether the session is the writer, the others what
// has changed. The bytes of a viewer are ignored. The session continues when the machine restarts.
//
// # portforward
//
// A TCP connection to the port of the guest in the query parameter port, over a WebSocket. Binary messages are the bytes
// of the connection. It is connected when the WebSocket is. The server closes the WebSocket with the status 1000 when the
// guest has closed the connection. A client that offers the subprotocol HalfClose, and to which the server confirms it, may
// end its own side with an empty text message: the guest learns that nothing follows, and its answer still arrives.
//
// # log
//
// The log of the serial console, as text/plain. The query parameter tail=N limits it to the last N lines. With
// follow=true the response goes on with new output until the client ends it.
//
// # screen
//
// The display of a machine with spec.display.type VGA, over a WebSocket: a connection to its VNC server, which speaks RFB
// (RFC 6143) without a password. Binary messages are bytes of the connection, in both directions, as viewers such as noVNC
// expect. Several clients see the same. The server closes the WebSocket with the status 1000 when the machine is powered
// off.
//
// # screenshot
//
// What the display shows, as image/png.
//
// # usage
//
// The usage of the last hour, as a MachineUsage in JSON: what a graph needs. A machine that is off has the samples from
// before, one that was created just now has none.
//
// # proxy
//
// The API of a Cluster, which is cluster-scoped, is at
//
//	/apis/access.cloudnative.tw/v1alpha1/clusters/NAME/proxy
//
// with all methods, watches and upgrades. It is the server of a kubeconfig, with credentials for the API that has the Cluster.
// Requests have all permissions in the Cluster. A request that is refused before it reaches the Cluster gets a metav1.Status:
// 404 without such a Cluster, 429 for too many requests, 503 for a Cluster that is not ready or does not answer.
//
// # Ends of a WebSocket
//
// The server closes a WebSocket with one of the Close codes and a sentence for the user, or with the status 1001 when the
// manager stops; then the client may connect again. Messages of the server are at most MaxMessage bytes; those of a client
// have no limit, because they are passed on as they arrive.
package client

import "github.com/coder/websocket"

// The API.
const (
	Group    = "access.cloudnative.tw"
	Version  = "v1alpha1"
	Resource = "virtualmachines"
)

// The subresources of a VirtualMachine.
const (
	Console     = "console"
	Log         = "log"
	PortForward = "portforward"
	Screen      = "screen"
	Screenshot  = "screenshot"
	Usage       = "usage"
)

// Proxy is the subresource of Clusters.
const (
	Clusters = "clusters"
	Proxy    = "proxy"
)

// The query parameters.
const (
	// ParameterWrite is that of console: false asks for a viewer. The default is true.
	ParameterWrite = "write"
	// ParameterTail is that of log: the number of lines. The default is all.
	ParameterTail = "tail"
	// ParameterFollow is that of log: true sends new output until the client ends the request. The default is false.
	ParameterFollow = "follow"
	// ParameterPort is that of portforward: the TCP port of the guest.
	ParameterPort = "port"
)

// The statuses with which the server closes a WebSocket, besides those of RFC 6455.
const (
	// CloseForbidden: the user may no longer use the subresource.
	CloseForbidden websocket.StatusCode = 4403
	// CloseIdle: nothing was sent in either direction for an hour.
	CloseIdle websocket.StatusCode = 4408
	// CloseGone: the machine was deleted, or replaced by another one of the same name.
	CloseGone websocket.StatusCode = 4410
	// CloseSlow: the client did not read the output fast enough.
	CloseSlow websocket.StatusCode = 4429
)

// HalfClose is the subprotocol of a portforward whose client may end its side.
const HalfClose = "halfclose.access.cloudnative.tw"

// MaxMessage is the largest message of the server, in bytes.
const MaxMessage = 64 << 10

// Notice is a text message of a console.
type Notice struct {
	// Notice is a sentence for the user; empty in the first message.
	Notice string `json:"notice,omitempty"`
	// Writer says whether the machine now gets what this session sends.
	Writer bool `json:"writer"`
}
