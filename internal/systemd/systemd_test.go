package systemd

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		reason, cgroups string
		want            surroundings
	}{
		{"a service", "0::/system.slice/keelson-manager.service\n", surroundings{unit: "keelson-manager.service"}},
		{"version 1", "9:name=systemd:/system.slice/keelson-up.service\n8:pids:/system.slice/other.service\n", surroundings{unit: "keelson-up.service"}},
		{"both versions", "1:name=systemd:/system.slice/a.service\n0::/system.slice/b.service\n", surroundings{unit: "a.service"}},
		{"a control group below that of the service", "0::/system.slice/a.service/child\n", surroundings{unit: "a.service"}},
		{"a session", "0::/user.slice/user-1000.slice/session-3.scope\n", surroundings{unit: "session-3.scope"}},
		{"a service of a user", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.service\n", surroundings{unit: "a.service", user: true}},
		{"a container", "0::/\n", surroundings{}},
		{"nonsense", "hello\n", surroundings{}},
	} {
		if got := parse(test.cgroups); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.reason, got, test.want)
		}
	}
}

func TestWarning(t *testing.T) {
	for _, test := range []struct {
		reason string
		s      surroundings
		want   string // a part of it
	}{
		{"no systemd", surroundings{}, ""},
		{"our units", surroundings{unit: "keelson-manager.service", killMode: "process"}, ""},
		{"the default of systemd", surroundings{unit: "my.service", killMode: "control-group"}, "my.service has KillMode=control-group"},
		{"SIGKILL for all but the main process", surroundings{unit: "my.service", killMode: "mixed"}, "KillMode=process"},
		{"systemd has not answered", surroundings{unit: "my.service"}, ""},
		{"a session", surroundings{unit: "session-3.scope"}, ""},
		{"a session that ends with its processes", surroundings{unit: "session-3.scope", killsSession: true}, "enable-linger"},
	} {
		got := warning(test.s)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.reason, got, test.want)
		}
	}
}
