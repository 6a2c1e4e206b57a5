package life

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func (m *machine) ephemeral() string {
	return m.path("tmp", fmt.Sprintf("keelson-ephemeral-%d", os.Getuid()))
}

// ephemeralIsGone fails the test if an ephemeral control plane has left anything behind.
func (m *machine) ephemeralIsGone(t *testing.T) {
	t.Helper()
	m.nothingIsLeft(t)
	if _, err := os.Stat(m.ephemeral()); !os.IsNotExist(err) {
		t.Errorf("the ephemeral directory still exists: %v", err)
	}
}

// An impatient user interrupts the start.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, test := range []struct {
		name  string
		words []string
		code  int
		says  string
	}{
		{"in the foreground, a normal stop", []string{"keelson", "up", "--ephemeral"}, 0, "Stopped before it was ready.\n"},
		{"in the background, an error that ends a script", []string{"keelson", "up", "--ephemeral", "--detach"}, 1, "error: interrupted: Keelson was stopped again\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := m.Start(t, test.words...)
			up.Await(t, "  etcd  ") // now the API server starts, which takes longest
			up.Signal(t, os.Interrupt)
			result := up.Wait(t)
			if result.Code != test.code {
				t.Errorf("exit code %d, want %d", result.Code, test.code)
			}
			transcript.Contains(t, result.Stdout, test.says)
			if strings.Contains(result.Stdout, "Keelson is up") {
				t.Errorf("it was interrupted too late:\n%s", result.Stdout)
			}
			m.ephemeralIsGone(t)
		})
	}
}

// stepLine is the final line of a step on the terminal.
var stepLine = regexp.MustCompile(`^  [a-z-]+ +\d+\.\d\d s$`)

// On a terminal, a live last line shows the current steps. It disappears at the end.
func TestLongTerminal(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const columns = 36 // two concurrent steps do not fit
	up := m.StartOnTerminal(t, columns, "keelson", "up", "--ephemeral")
	up.Await(t, "Nothing is kept.")
	for _, text := range []string{"  kube-apiserver ... 0 s", "  definitions ... 0 s"} {
		if !strings.Contains(up.Text(), text) {
			t.Errorf("the live line never was %q:\n%q", text, up.Text())
		}
	}
	screen := up.Screen()
	steps := slices.Index(screen, "")
	for _, line := range screen[:max(steps, 0)] {
		if !stepLine.MatchString(line) {
			t.Errorf("unexpected line on the screen: %q", line)
		}
	}
	if steps < 8 {
		t.Errorf("%d steps are on the screen", steps)
	}
	transcript.Contains(t, strings.Join(screen[max(steps, 0):], ""), "Keelson is ready after ", "Ctrl-C stops it. Nothing is kept.")

	up.CtrlC(t)
	if result := up.Wait(t); result.Code != 0 {
		t.Errorf("exit code %d after Ctrl-C", result.Code)
	}
	if screen := up.Screen(); !slices.Equal(screen[len(screen)-2:], []string{"Stopping ...", ""}) {
		t.Errorf("last lines on the screen: %q", screen[len(screen)-4:])
	}
	m.ephemeralIsGone(t)
}
