package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// A port is used by the Cluster that has it and runs, not by one that is stopped, nor by the one that asks.
func TestPortUser(t *testing.T) {
	e := New(Options{Dir: t.TempDir()})
	for uid, port := range map[types.UID]string{"asks": "20001", "runs": "20001", "stopped": "20002", "other": "20003"} {
		if err := os.MkdirAll(e.dir(uid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(e.dir(uid), "state.json"), []byte(`{"port": `+port+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := writeOwner(e.dir(uid), owner{Name: "name-of-" + string(uid), ManagementClusterUID: "home"}); err != nil {
			t.Fatal(err)
		}
		if uid == "stopped" {
			continue
		}
		procs, err := process.Open(controlplane.Processes(e.dir(uid)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := procs.Start(process.Spec{ID: "kube-apiserver", Path: "/bin/sleep", Args: []string{"600"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Stop(context.WithoutCancel(t.Context()), process.StopOptions{}); err != nil {
				t.Error(err)
			}
			_ = procs.Close()
		})
	}
	for server, want := range map[string]string{
		"https://127.0.0.1:20001": "the Cluster name-of-runs", "https://127.0.0.1:20002": "", "https://192.0.2.1:20003": "", "https://127.0.0.1:20004": "",
	} {
		if got := e.portUser("asks", server); got != want {
			t.Errorf("%s is used by %q, want %q", server, got, want)
		}
	}
}
