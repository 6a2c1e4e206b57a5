// Package systemd has the units that run Keelson on a host.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installed is where the units expect the program.
const installed = "/usr/local/bin/keelson"

// TestUnits has systemd read the units, each as it is and, as docs/systemd.md says, with the settings for a real node.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIP: there is no systemd-analyze: apt-get install systemd")
	}
	for name, dropIn := range map[string]bool{"as they are": false, "with a real node": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			paths := copyUnits(t, dir)
			if dropIn {
				for _, unit := range []string{"keelson-up.service", "keelson-up-poweroff.service"} {
					copyUnit(t, "real-node.conf", filepath.Join(dir, unit+".d", "real-node.conf"))
				}
			}
			// A user of that name need not be here; the program is another.
			cmd := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no"}, paths...)...)
			cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
			if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "" {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
		})
	}
}

// TestMachinesOutliveTheirUnit guards what a change must not drop.
func TestMachinesOutliveTheirUnit(t *testing.T) {
	for _, unit := range []string{"keelson-up", "keelson-manager"} {
		text, err := os.ReadFile(unit + ".service")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"KillMode=process", "OOMPolicy=continue", "Requires=" + unit + "-poweroff.service"} {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `$`).Match(text) {
				t.Errorf("%s.service has no line %s", unit, line)
			}
		}
		// These would take from machines, or from the next manager, what they need.
		for _, setting := range []string{"PrivateTmp", "PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute", "RuntimeDirectory", "DynamicUser"} {
			if regexp.MustCompile(`(?m)^` + setting + `=`).Match(text) {
				t.Errorf("%s.service has %s: see docs/internals/systemd.md", unit, setting)
			}
		}
	}
}

// copyUnits copies the units, with a program that is there.
func copyUnits(t *testing.T, dir string) (paths []string) {
	t.Helper()
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	for _, unit := range units {
		path := filepath.Join(dir, unit)
		copyUnit(t, unit, path)
		paths = append(paths, path)
	}
	return paths
}

func copyUnit(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(text), installed, "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
}
