package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// run runs the command.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return harness.Execute(t, New(), args...)
}

// On a host without any program, the command names what is missing and fails.
func TestEmptyHost(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("KEELSON_KUBE", "/nowhere/keelson-kube")
	t.Setenv("KEELSON_NODE", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	out, err := run(t, "--data-dir", t.TempDir()+"/data", "-o", "json")
	if !errors.Is(err, usage.ErrSilent) {
		t.Errorf("error is %v, want %v", err, usage.ErrSilent)
	}
	var features []feature
	if err := json.Unmarshal([]byte(out), &features); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var works []string
	for _, f := range features {
		if f.works() {
			works = append(works, f.Name)
		}
	}
	if len(features) != 4 || len(works) > 0 {
		t.Errorf("%d features, of which %q work", len(features), works)
	}
	for _, remedy := range []string{"KEELSON_KUBE", "make node", "apt-get install qemu-system-x86", "apt-get install docker.io"} {
		if !strings.Contains(out, remedy) {
			t.Errorf("the output lacks %q:\n%s", remedy, out)
		}
	}
}

func TestWrite(t *testing.T) {
	features := []feature{
		{Name: "API", Required: true, Checks: []check{result("components", "/bin/kube", nil), enough("disk", 1<<28, minDisk, "free", "free some")}},
		{Name: "Machines", Checks: []check{result("QEMU", "", fmt.Errorf("%w: install it", backend.ErrMissing)), {Name: "KVM", State: limited, Detail: "emulated"}}},
	}
	want := `API
  ok       components           /bin/kube
  missing  disk                 0.2 GiB free; 0.5 GiB are needed: free some

Machines
  missing  QEMU                 install it
  limited  KVM                  emulated
`
	var out bytes.Buffer
	if err := write(&out, "text", features); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUsage(t *testing.T) {
	_, err := run(t, "-o", "yaml")
	if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) {
		t.Errorf("error is %v, want one of usage", err)
	}
}
