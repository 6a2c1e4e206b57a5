package instance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

func TestDescribe(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_DATA_HOME", "")
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	etcd := controlplane.ComponentReport{Name: "etcd", State: "Running", PID: 12, StartedAt: now.Add(-90 * time.Second)}
	stopped := controlplane.ComponentReport{Name: "etcd", State: "Exited", PID: 12, StartedAt: now.Add(-time.Hour), Ended: "killed by SIGTERM"}
	const dir = "/home/me/.local/share/keelson"
	report := func(change func(*controlplane.Report)) controlplane.Report {
		r := controlplane.Report{Dir: dir, Exists: true, Server: "https://127.0.0.1:20000", Kubeconfig: dir + "/kubeconfig"}
		change(&r)
		return r
	}
	const files = `
  data        /home/me/.local/share/keelson
  kubeconfig  /home/me/.local/share/keelson/kubeconfig
  server      https://127.0.0.1:20000
`
	for _, test := range []struct {
		name   string
		report controlplane.Report
		want   string
	}{
		{
			"nothing exists",
			controlplane.Report{Dir: dir},
			"Keelson was never started in /home/me/.local/share/keelson.\n",
		},
		{
			"running",
			report(func(r *controlplane.Report) {
				r.ManagerPID, r.APIReady, r.Components = 11, true, []controlplane.ComponentReport{etcd}
			}),
			"Keelson is running (pid 11).\n" + files + `
  etcd                     Running  pid 12, up 1m30s
`,
		},
		{
			"etcd is full",
			report(func(r *controlplane.Report) {
				r.ManagerPID, r.APIReady, r.EtcdAlarm, r.Components = 11, true, "NOSPACE: delete something", []controlplane.ComponentReport{etcd}
			}),
			"Keelson is running (pid 11), but etcd has an alarm.\n" + files + `  etcd alarm  NOSPACE: delete something

  etcd                     Running  pid 12, up 1m30s
`,
		},
		{
			"the API is not ready, one component has died, another one is starting",
			report(func(r *controlplane.Report) {
				r.ManagerPID, r.APIError = 11, "connection refused"
				r.Components = []controlplane.ComponentReport{
					etcd,
					{Name: "kube-apiserver", State: "Exited", PID: 13, StartedAt: now.Add(-time.Minute), Ended: "exit code 1"},
					{Name: "kube-scheduler", State: "Starting", Ended: "exit status unknown"},
				}
			}),
			"Keelson is running (pid 11), but its API is not ready: it is starting or stopping, or has a problem; see the logs in /home/me/.local/share/keelson/logs.\n" + files +
				`  API error   connection refused

  etcd                     Running  pid 12, up 1m30s
  kube-apiserver           Exited   exit code 1
  kube-scheduler           Starting
`,
		},
		{
			"no component is running",
			report(func(r *controlplane.Report) { r.ManagerPID, r.Components = 11, []controlplane.ComponentReport{stopped} }),
			"Keelson is starting or stopping (pid 11).\n" + files + `
  etcd                     Exited   killed by SIGTERM
`,
		},
		{
			"keelson was killed",
			report(func(r *controlplane.Report) { r.APIReady, r.Components = true, []controlplane.ComponentReport{etcd} }),
			"Keelson is not running, but some of its components are. `keelson up` adopts them, `keelson down` stops them.\n" + files + `
  etcd                     Running  pid 12, up 1m30s
`,
		},
		{
			"stopped",
			report(func(r *controlplane.Report) { r.Components = []controlplane.ComponentReport{stopped} }),
			"Keelson is stopped. `keelson up` starts it with its data.\n" + files,
		},
		{
			"with a data directory",
			controlplane.Report{Dir: "/my data", Exists: true, Server: "https://127.0.0.1:20000", Kubeconfig: "/my data/kubeconfig"},
			"Keelson is stopped. `keelson up --data-dir '/my data'` starts it with its data.\n" + `
  data        /my data
  kubeconfig  /my data/kubeconfig
  server      https://127.0.0.1:20000
`,
		},
		{
			"ephemeral, after a crash of the host",
			controlplane.Report{Dir: "/x", Exists: true, Ephemeral: true, Server: "https://127.0.0.1:20000", Kubeconfig: "/x/kubeconfig"},
			"Keelson is stopped, but its ephemeral data is left. `keelson down --data-dir /x` deletes it.\n" + `
  data        /x (ephemeral: deleted when it stops)
  kubeconfig  /x/kubeconfig
  server      https://127.0.0.1:20000
`,
		},
		{
			"ephemeral, and keelson was killed",
			controlplane.Report{
				Dir: "/x", Exists: true, Ephemeral: true, Server: "https://127.0.0.1:20000", Kubeconfig: "/x/kubeconfig",
				Components: []controlplane.ComponentReport{etcd},
			},
			"Keelson is not running, but some of its components are. `keelson up --data-dir /x --ephemeral` adopts them, `keelson down --data-dir /x` stops them.\n" + `
  data        /x (ephemeral: deleted when it stops)
  kubeconfig  /x/kubeconfig
  server      https://127.0.0.1:20000

  etcd                     Running  pid 12, up 1m30s
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Describe(test.report, now)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestKubeBinary(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "keelson-kube")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	write(t, dir, "plain", "no program")
	for _, test := range []struct {
		name, named, path string
		want              string // "" for an error
	}{
		{"it is in PATH", "", dir, program},
		{"it does not exist", "", "/nowhere", ""},
		{"the variable has its path", program, "/nowhere", program},
		{"the variable has a missing path", filepath.Join(dir, "other"), dir, ""},
		{"the variable has the path of another file", plain, dir, ""},
		{"the variable has the path of a directory", dir, dir, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KEELSON_KUBE", test.named)
			t.Setenv("PATH", test.path)
			if got, err := KubeBinary(); got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q and error %v, want %q", got, err, test.want)
			}
		})
	}
}

// A suspended program stops as well. A zombie counts as ended.
func TestSignalManager(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if process.IsGone(pid) {
		t.Error("it counts as ended while it is suspended")
	}
	if err := SignalManager(pid); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return process.IsGone(pid), nil
	})
	if err != nil {
		t.Fatalf("it has not ended: %v", err)
	}
	_ = child.Wait() // a signal has ended it
	if !process.IsGone(pid) {
		t.Error("it does not count as ended after it was reaped")
	}
	if err := SignalManager(pid); !errors.Is(err, ErrGone) {
		t.Errorf("second call: %v, want ErrGone", err)
	}
}
