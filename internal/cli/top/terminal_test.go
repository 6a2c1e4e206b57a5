package top

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits; the machine may be busy.
const patience = time.Minute

// terminal is a pseudo-terminal with an emulator, which also answers the requests of programs.
type terminal struct {
	master, tty *os.File
	before      unix.Termios
	mu          sync.Mutex
	emulator    *vt.Emulator
	output      strings.Builder
	more        chan struct{}
}

func newTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, tty: tty, emulator: vt.NewEmulator(int(columns), int(rows)), more: make(chan struct{}, 1)}
	// Not the tty: the reader of a program that was cancelled may still use it.
	t.Cleanup(func() { _, _ = master.Close(), closeAnswers(term.emulator) })
	term.resize(t, columns, rows)
	term.before = term.settings(t)
	go func() {
		chunk := make([]byte, 4096)
		for {
			n, err := master.Read(chunk)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.output.Write(chunk[:n])
			_, _ = term.emulator.Write(chunk[:n]) // a strings.Builder inside
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
		}
	}()
	go func() {
		answer := make([]byte, 256)
		for {
			n, err := term.emulator.Read(answer)
			if err != nil {
				return
			}
			if _, err := master.Write(answer[:n]); err != nil {
				return
			}
		}
	}()
	return term
}

// closeAnswers ends the answers of an emulator. Its method Close may not be called during Read.
func closeAnswers(emulator *vt.Emulator) error {
	if pipe, ok := emulator.InputPipe().(io.Closer); ok {
		return pipe.Close()
	}
	return nil
}

func (term *terminal) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	if err := pty.Setsize(term.master, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	term.emulator.Resize(int(columns), int(rows))
}

// screen returns what the terminal shows.
func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return ansi.Strip(term.emulator.String())
}

// written returns all that was written to the terminal.
func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.output.String()
}

// until waits until the terminal shows, or was sent, what is expected.
func (term *terminal) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-term.more:
		case <-deadline:
			t.Fatalf("not %s:\n%s\n%q", what, term.screen(), term.written())
		}
	}
}

// await waits until the terminal shows a text.
func (term *terminal) await(t *testing.T, part string) {
	t.Helper()
	term.until(t, "showing "+part, func() bool { return strings.Contains(term.screen(), part) })
}

func (term *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) settings(t *testing.T) unix.Termios {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(term.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *settings
}

// checkLeft checks that the terminal is as it was: its settings, its main screen, and its modes.
func (term *terminal) checkLeft(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(term.before, term.settings(t)); diff != "" {
		t.Errorf("the settings of the terminal (-before +after)\n%s", diff)
	}
	// The end of the output may not be read yet.
	for _, mode := range []struct{ on, off string }{
		{"\x1b[?1049h", "\x1b[?1049l"}, // the alternate screen
		{"\x1b[?25l", "\x1b[?25h"},     // the hidden cursor
		{"\x1b[?2004h", "\x1b[?2004l"}, // bracketed paste
		{"\x1b[>4;2m", "\x1b[>4m"},     // modified keys
		{"\x1b[>1u", "\x1b[<1u"},       // the keyboard protocol of kitty
	} {
		term.until(t, "undoing "+mode.on, func() bool {
			output := term.written()
			return strings.LastIndex(output, mode.on) < strings.LastIndex(output, mode.off) || !strings.Contains(output, mode.on)
		})
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	if term.emulator.IsAltScreen() || term.emulator.CursorHidden() {
		t.Errorf("the terminal has the alternate screen (%t) or no cursor (%t)", term.emulator.IsAltScreen(), term.emulator.CursorHidden())
	}
}
