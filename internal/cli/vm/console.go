package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

const (
	// escape ends a console: Ctrl-].
	escape = 0x1d
	// reconnectDelay is the delay before a lost console connects again.
	reconnectDelay = time.Second
)

func newConsole(flags *target.Flags) *cobra.Command {
	readOnly := false
	cmd := &cobra.Command{
		Use:   "serial NAME",
		Short: "Connect to the serial console of a machine",
		Long: `Connect to the serial console of a machine, through the Kubernetes API. Ctrl-] ends it. Several users can
watch a console; the latest one writes, unless --read-only is set. The console stays when the machine restarts.`,
		Example: `  keelson vm serial web`,
		Args:    oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			if _, err := m.Find(cmd.Context(), args[0]); err != nil {
				return err
			}
			c := &console{machines: m, name: args[0], readOnly: readOnly, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), notices: cmd.ErrOrStderr()}
			return c.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "only watch")
	return cmd
}

// console is a session at the console of a machine.
type console struct {
	*machines
	name     string
	readOnly bool
	in       io.Reader
	out      io.Writer
	notices  io.Writer
	// eol ends a line of notices: in raw mode the terminal does not return to the first column.
	eol string
	// connected tells that there is a session, and said that the user knows that there is none.
	connected, said bool
}

// run connects, and connects again if the manager restarts, until the user or the server ends it.
func (c *console) run(ctx context.Context) error {
	c.eol = "\n"
	terminal := false
	if file, ok := c.in.(*os.File); ok && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a descriptor fits
		before, err := term.MakeRaw(int(file.Fd())) //nolint:gosec // a descriptor fits
		if err != nil {
			return fmt.Errorf("prepare the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(file.Fd()), before) }() //nolint:gosec // a descriptor fits
		c.eol, terminal = "\r\n", true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan []byte)
	go func() {
		if c.read(ctx, keys) || terminal {
			cancel()
		}
	}()
	for {
		err := c.session(ctx, keys)
		if ctx.Err() != nil {
			c.notify("")
			return nil
		}
		if status := websocket.CloseStatus(err); status != websocket.StatusGoingAway && status != -1 || isRefusal(err) {
			return explain(err)
		}
		c.lost(err)
		select {
		case <-ctx.Done(): // the next session ends at once
		case <-time.After(reconnectDelay):
		}
	}
}

// lost tells the user once that there is no connection.
func (c *console) lost(err error) {
	switch {
	case c.connected:
		c.notify(c.eol + "The connection is lost; connecting again. Ctrl-] ends it.")
	case !c.said:
		c.notify("Not connected to the console of " + c.name + " yet, trying again; Ctrl-] ends it: " + err.Error())
	}
	c.connected, c.said = false, true
}

// isRefusal reports whether the API has refused a session.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, client.ErrNotOffered) || errors.As(err, &status) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsConflict(err)
}

// explain returns the error for the end of a session.
func explain(err error) error {
	if closed := (websocket.CloseError{}); errors.As(err, &closed) && closed.Reason != "" {
		return errors.New(closed.Reason)
	}
	return err
}

func (c *console) notify(text string) { _, _ = fmt.Fprint(c.notices, text, c.eol) } // nothing else could report a failure

// read sends what is typed until the input ends. It reports whether that was by the escape character.
func (c *console) read(ctx context.Context, keys chan<- []byte) (escaped bool) {
	buffer := make([]byte, 4096)
	for {
		n, err := c.in.Read(buffer)
		typed, _, ended := bytes.Cut(buffer[:n], []byte{escape})
		if len(typed) > 0 {
			select {
			case keys <- bytes.Clone(typed):
			case <-ctx.Done():
				return false
			}
		}
		if ended || err != nil {
			return ended
		}
	}
}

// session copies in both directions until one of them ends.
func (c *console) session(ctx context.Context, keys <-chan []byte) error {
	conn, err := client.Dial(ctx, c.API.Config, c.API.Namespace, c.name, client.Console, url.Values{client.ParameterWrite: {fmt.Sprint(!c.readOnly)}})
	if err != nil {
		return err
	}
	c.notify("Connected to the console of " + c.name + ". Ctrl-] ends it.")
	c.connected, c.said = true, false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = conn.Close(websocket.StatusNormalClosure, "") }() // the other side may have closed it
	go func() {
		for {
			select {
			case typed := <-keys:
				if conn.Write(ctx, websocket.MessageBinary, typed) != nil {
					return // the reader gets the reason
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if _, err := c.out.Write(data); err != nil {
				return err
			}
			continue
		}
		var notice client.Notice
		if err := json.Unmarshal(data, &notice); err == nil && notice.Notice != "" {
			c.notify(c.eol + "[" + notice.Notice + "]")
		}
	}
}
