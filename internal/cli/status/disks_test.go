package status

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/manager"
)

// run runs the command on the data directory of a stopped instance and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := New()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err == nil {
		t.Error("the command succeeds although nothing is running")
	}
	return out.String()
}

func TestRetainedDisksAreListed(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // without the user's other data directories
	dir := t.TempDir()
	disk := filepath.Join(manager.MachinesDir(dir), "retained", "default", "web", "6b1a3c5e-0000-4000-8000-000000000000.qcow2")
	if err := os.MkdirAll(filepath.Dir(disk), 0o700); err != nil {
		t.Fatal(err)
	}
	before := run(t, "--data-dir", dir)
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 3<<20); err != nil { // allocates nothing
		t.Fatal(err)
	}
	want := before + "\nDisks of deleted VirtualMachines (diskPolicy: Retain, or the object was lost). Delete the files that you do not need:\n\n" +
		"  default/web              0 MiB of 3 MiB  " + disk + "\n"
	if diff := cmp.Diff(want, run(t, "--data-dir", dir)); diff != "" {
		t.Errorf("as text (-want +got):\n%s", diff)
	}
	var got struct{ RetainedDisks []backend.RetainedDisk }
	if err := json.NewDecoder(strings.NewReader(run(t, "--data-dir", dir, "-o", "json"))).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]backend.RetainedDisk{{Namespace: "default", Name: "web", Path: disk, VirtualBytes: 3 << 20}}, got.RetainedDisks); diff != "" {
		t.Errorf("as JSON (-want +got):\n%s", diff)
	}
}

// An unreadable directory of machines does not hide the state of the instance.
func TestStatusWithoutTheRetainedDisks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(manager.MachinesDir(dir), nil, 0o600); err != nil { // a file in its place: even root cannot list it
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := New()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--data-dir", dir})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "list retained disks") {
		t.Errorf("got error %v", err)
	}
	if !strings.Contains(out.String(), dir) {
		t.Errorf("status prints %q", out.String())
	}
}
