package transcript

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// Terminal is a command in the foreground of a terminal.
type Terminal struct {
	*Running
	columns  int
	keyboard *os.File
}

// StartOnTerminal starts a command on a terminal with that number of columns.
func (s Shell) StartOnTerminal(t testing.TB, columns int, words ...string) *Terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	cmd := s.Command(context.WithoutCancel(t.Context()), t, words...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return &Terminal{Running: start(t, cmd, words, tty, master), columns: columns, keyboard: master}
}

// Type types text, in which \r is the key Enter.
func (t *Terminal) Type(tb testing.TB, text string) {
	tb.Helper()
	if _, err := t.keyboard.Write([]byte(text)); err != nil {
		tb.Fatal(err)
	}
}

// CtrlC presses Ctrl-C: the terminal sends a signal to the command.
func (t *Terminal) CtrlC(tb testing.TB) {
	tb.Helper()
	tb.Log("$ (Ctrl-C)")
	if _, err := t.keyboard.Write([]byte{3}); err != nil {
		tb.Fatal(err)
	}
}

// Screen returns the current lines of the terminal, without trailing spaces.
func (t *Terminal) Screen() []string { return render(t.Text(), t.columns) }

// render returns the lines that a terminal shows for text. It supports line feeds, carriage returns
// and clearing a line; other escape sequences stay visible.
func render(text string, columns int) []string {
	rows, column := [][]rune{nil}, 0
	for text != "" {
		last := len(rows) - 1
		switch {
		case strings.HasPrefix(text, "\r"):
			column = 0
			text = text[1:]
			continue
		case strings.HasPrefix(text, "\n"):
			rows = append(rows, nil)
			text = text[1:]
			continue
		case strings.HasPrefix(text, "\x1b[2K"):
			rows[last] = nil
			text = text[len("\x1b[2K"):]
			continue
		}
		if column == columns {
			rows, column, last = append(rows, nil), 0, last+1
		}
		r := []rune(text)[0]
		for len(rows[last]) <= column {
			rows[last] = append(rows[last], ' ')
		}
		rows[last][column] = r
		column++
		text = text[len(string(r)):]
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = strings.TrimRight(string(row), " ")
	}
	return lines
}
