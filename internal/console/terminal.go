package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
)

const (
	terminalProtocol = "keelson-terminal"
	screenProtocol   = "keelson-screen"
	maxTerminals     = 32 // of all windows
	// maxInput is the size of a message from the page in bytes.
	maxInput = 64 << 10
	// connectTimeout limits the connection to a console.
	connectTimeout = 10 * time.Second
)

var namePath = regexp.MustCompile(`^` + name + `$`)

// isName reports whether a text can be the name of an object in a path.
func isName(text string) bool { return namePath.MatchString(text) && !strings.Contains(text, "..") }

// failed is the text message to a terminal or a screen that cannot be opened. A page cannot read the response to a
// WebSocket that is refused.
type failed struct {
	Error string `json:"error"`
}

// terminal connects a terminal of the page with the serial console of a machine. The messages in both directions are
// those of the access API.
func (c *Console) terminal(w http.ResponseWriter, r *http.Request) {
	query := url.Values{}
	if r.URL.Query().Get(client.ParameterWrite) == "false" {
		query.Set(client.ParameterWrite, "false")
	}
	c.joinMachine(w, r, terminalProtocol, client.Console, query)
}

// screen connects a noVNC of the page with the display of a machine.
func (c *Console) screen(w http.ResponseWriter, r *http.Request) {
	c.joinMachine(w, r, screenProtocol, client.Screen, nil)
}

// joinMachine connects the page with a subresource of a machine.
func (c *Console) joinMachine(w http.ResponseWriter, r *http.Request, protocol, subresource string, query url.Values) {
	namespace, machine := r.PathValue("namespace"), r.PathValue("name")
	if !isName(namespace) || !isName(machine) {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "This is not the name of a machine.")
		return
	}
	select {
	case c.terminals <- struct{}{}:
		defer func() { <-c.terminals }()
	default:
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "There are too many open terminals and screens: close some.")
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return // it has answered
	}
	defer func() { _ = socket.CloseNow() }()
	socket.SetReadLimit(maxInput)
	connecting, stop := context.WithTimeout(r.Context(), connectTimeout)
	defer stop()
	guest, err := client.Dial(connecting, c.configOf(r.Context()), namespace, machine, subresource, query)
	if err != nil {
		raw, _ := json.Marshal(failed{err.Error()})                         // a string is always JSON
		_ = socket.Write(connecting, websocket.MessageText, raw)            // the browser has gone
		_ = socket.Close(websocket.StatusNormalClosure, "it has the error") // as above
		return
	}
	defer func() { _ = guest.CloseNow() }()
	join(r.Context(), socket, guest)
}

// join passes messages on in both directions until one side ends, and ends the other one for the same reason.
func join(ctx context.Context, page, guest *websocket.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = relay(ctx, guest, page) // the page knows why it ends
		_ = guest.Close(websocket.StatusNormalClosure, "")
		cancel()
	}()
	var end websocket.CloseError
	if errors.As(relay(ctx, page, guest), &end) {
		_ = page.Close(end.Code, end.Reason)
	} else {
		_ = page.Close(websocket.StatusGoingAway, "The connection to the machine is lost.")
	}
	cancel()
	<-ended
}

// relay copies messages until there is an error.
func relay(ctx context.Context, to, from *websocket.Conn) error {
	for {
		kind, raw, err := from.Read(ctx)
		if err != nil {
			return err
		}
		writing, cancel := context.WithTimeout(ctx, writeTimeout)
		err = to.Write(writing, kind, raw)
		cancel()
		if err != nil {
			return err
		}
	}
}
