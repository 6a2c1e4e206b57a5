package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Browsers open six connections to a server, for all their windows. So all watches of a window share one WebSocket,
// which does not count among them.
const (
	watchProtocol  = "keelson-watch"
	maxConnections = 64               // with watches, of all windows
	maxWatches     = 64               // on one connection
	maxCommand     = 8 << 10          // bytes of a message from the page
	maxEvent       = 4 << 20          // bytes of one event
	maxFailure     = 64 << 10         // bytes of an error of the API
	writeTimeout   = 20 * time.Second // a browser that reads no more
	beatInterval   = 5 * time.Second  // the page waits three times as long
)

// command is a message from the page: to start the watch of a path, or to stop it.
type command struct {
	ID   int    `json:"id"`
	Path string `json:"path"` // empty: stop
}

// message is a message to the page: an event or the end of a watch. An empty one is the sign of life.
type message struct {
	ID    int             `json:"id,omitempty"`
	Open  bool            `json:"open,omitempty"` // the API has accepted the watch
	Event json.RawMessage `json:"event,omitempty"`
	End   *metav1.Status  `json:"end,omitempty"`
}

// connection has the watches of one window.
type connection struct {
	console *Console
	socket  *websocket.Conn

	mu      sync.Mutex
	watches map[int]*watch
}

// watch is one running watch.
type watch struct{ cancel context.CancelFunc }

func (c *Console) watch(w http.ResponseWriter, r *http.Request) {
	select {
	case c.watchers <- struct{}{}:
		defer func() { <-c.watchers }()
	default:
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "The console is open in too many windows: close some.")
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{watchProtocol}})
	if err != nil {
		return // it has answered
	}
	defer func() { _ = socket.CloseNow() }()
	socket.SetReadLimit(maxCommand)
	ctx, cancel := context.WithCancel(r.Context())
	conn := &connection{console: c, socket: socket, watches: map[int]*watch{}}
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		conn.beat(ctx)
	})
	conn.obey(ctx, &running)
	cancel()
	running.Wait()
}

// beat tells the page regularly that the connection is alive. It returns when it is not.
func (c *connection) beat(ctx context.Context) {
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for c.send(ctx, message{}) == nil {
		select {
		case <-ctx.Done():
			_ = c.socket.CloseNow() // ends obey
			return
		case <-ticker.C:
		}
	}
	_ = c.socket.CloseNow()
}

// obey follows the commands of the page until the connection ends.
func (c *connection) obey(ctx context.Context, running *sync.WaitGroup) {
	for {
		_, raw, err := c.socket.Read(ctx)
		if err != nil {
			return
		}
		var asked command
		if json.Unmarshal(raw, &asked) != nil || asked.ID <= 0 {
			_ = c.socket.Close(websocket.StatusPolicyViolation, "not a command")
			return
		}
		if asked.Path == "" {
			c.stop(asked.ID)
			continue
		}
		watching, cancel := context.WithCancel(ctx)
		own := &watch{cancel: cancel}
		if !c.start(asked.ID, own) {
			cancel()
			_ = c.socket.Close(websocket.StatusPolicyViolation, "too many watches")
			return
		}
		running.Go(func() {
			defer cancel()
			end := c.run(watching, asked)
			c.finish(asked.ID, own)
			if watching.Err() == nil {
				_ = c.send(ctx, message{ID: asked.ID, End: end}) // the page notices a dead connection by itself
			}
		})
	}
}

// start records a watch. An ID is used once.
func (c *connection) start(id int, own *watch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.watches) >= maxWatches || c.watches[id] != nil {
		return false
	}
	c.watches[id] = own
	return true
}

func (c *connection) stop(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.watches[id]; found != nil {
		found.cancel()
		delete(c.watches, id)
	}
}

func (c *connection) finish(id int, own *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[id] == own {
		delete(c.watches, id)
	}
}

// run relays the events of a watch and returns why it ended. Code 200 is the usual end.
func (c *connection) run(ctx context.Context, asked command) *metav1.Status {
	request, err := c.console.newWatch(ctx, asked.Path)
	if err != nil {
		return newStatus(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
	}
	response, err := c.console.client.Do(request)
	if err != nil {
		return newStatus(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, c.console.unreachableMessage(err))
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return failure(response)
	}
	if c.send(ctx, message{ID: asked.ID, Open: true}) != nil {
		_ = c.socket.CloseNow()
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		event := bytes.TrimSpace(lines.Bytes())
		if !json.Valid(event) {
			return newStatus(http.StatusBadGateway, metav1.StatusReasonInternalError, "The Kubernetes API sent an event that is no JSON.")
		}
		if c.send(ctx, message{ID: asked.ID, Event: event}) != nil {
			_ = c.socket.CloseNow()
			break
		}
	}
	if err := lines.Err(); err != nil {
		return newStatus(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, c.console.unreachableMessage(err))
	}
	return &metav1.Status{Code: http.StatusOK}
}

// newWatch returns the request for a watch, if the page makes such a one.
func (c *Console) newWatch(ctx context.Context, path string) (*http.Request, error) {
	asked, err := url.ParseRequestURI(path)
	if err != nil || !c.allow(ctx, http.MethodGet, asked.EscapedPath()) || asked.Query().Get("watch") != "1" || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("the console makes no watch such as %q", path)
	}
	target := *c.server
	target.Path, target.RawQuery = c.pathOf(asked.Path), asked.RawQuery
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if asked.Query().Get("includeObject") == "" {
		request.Header.Set("Accept", "application/json")
	}
	c.identify(ctx, request.Header)
	return request, nil
}

// failure reads the error of the API.
func failure(response *http.Response) *metav1.Status {
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxFailure))
	var status metav1.Status
	if err == nil && json.Unmarshal(raw, &status) == nil && status.Kind == "Status" {
		return &status
	}
	return newStatus(response.StatusCode, metav1.StatusReasonUnknown, "The Kubernetes API answered "+response.Status+".")
}

// send writes one message.
func (c *connection) send(ctx context.Context, m message) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.socket.Write(ctx, websocket.MessageText, raw)
}
