package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// openConsole opens a path of the console, which ends with the test.
func (s session) openConsole(t *testing.T, path string) *browser.Tab {
	t.Helper()
	served := s.Start(t, "keelson", "console", "--kubeconfig", kubeconfig)
	served.Await(t, "#token=")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\S+`).FindString(served.Text())
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(url, "/#", path+"#", 1))
	return b
}

// A person changes a schedule in a browser, and sees its runs on the time line.
func TestLongAccessConsoleSchedule(t *testing.T) {
	s := newSession(t)
	s.kubectl(t, "create", "-f", manifest("crontab-backup.yaml"))
	b := s.openConsole(t, "/crontabs/"+s.namespace+"/backup")
	b.Sees("At 00:00 every day")
	b.Click("Change the schedule")
	b.Fill("Schedule", "*/3 * * * * *")
	b.Sees("Every 3 seconds")
	b.Until(`document.querySelectorAll(".times tbody tr").length === 10`)
	b.Click("Save")
	b.Sees("Succeeded", "< 1s")
	b.Until(`document.querySelectorAll(".lane .run.succeeded").length > 1`)
	b.Keep("real-schedule")
	b.Click("Suspend")
	b.Sees("The schedule is suspended")
	b.Click("Run now")
	b.Sees("on demand")
}
