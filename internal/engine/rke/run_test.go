package rke_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/rke"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// user is a controller of one cluster of a site.
type user struct {
	*site
	engine  *rke.Engine
	request cluster.Request
}

func newUser(s *site) *user {
	s.Helper()
	u := &user{site: s, request: cluster.Request{
		Name: "aws", UID: types.UID("uid-of-aws"),
		Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineRKE, ConfigPath: s.config},
	}}
	u.restart()
	s.Cleanup(func() { // nothing may be left that runs
		ctx := context.WithoutCancel(s.Context())
		if _, err := process.EndMarked(ctx, "KEELSON_RKE="+filepath.Join(s.opts.Dir, string(u.request.UID))); err != nil {
			s.Error(err)
		}
		if err := u.engine.Close(); err != nil {
			s.Error(err)
		}
	})
	return u
}

// restart is a new manager. The old one is not told.
func (u *user) restart() {
	u.Helper()
	if u.engine != nil {
		if err := u.engine.Close(); err != nil {
			u.Fatal(err)
		}
	}
	u.engine = rke.New(u.opts)
	u.engine.Notify(func(string) {})
}

func (u *user) observe() cluster.Observation {
	u.Helper()
	seen, err := u.engine.Observe(u.Context(), u.request)
	if err != nil {
		u.Fatalf("Observe: %v", err)
	}
	return seen
}

// settle waits until no run is under way, and notes what was applied, as the controller does.
func (u *user) settle() cluster.Observation {
	u.Helper()
	var seen cluster.Observation
	harness.Eventually(u, "rke has ended", func() bool {
		seen = u.observe()
		return seen.Operation == nil || seen.Operation.State != v1alpha1.OperationProcessing
	})
	if seen.Applied {
		u.request.Applied, u.request.AppliedConfig = seen.ConfigHash, seen.Config
	}
	return seen
}

// up applies and waits for the end.
func (u *user) up() cluster.Observation {
	u.Helper()
	if err := u.engine.Apply(u.Context(), u.request); err != nil {
		u.Fatalf("Apply: %v", err)
	}
	return u.settle()
}

// remove deletes and waits for the end of rke remove.
func (u *user) remove() cluster.Observation {
	u.Helper()
	u.request.Deleting = true
	if err := u.engine.Delete(u.Context(), u.request); err != nil {
		u.Fatalf("Delete: %v", err)
	}
	return u.settle()
}

func (u *user) expectCalls(want ...string) {
	u.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), u.calls()); diff != "" {
		u.Errorf("calls of rke (-want +got):\n%s", diff)
	}
}

func TestARunIsFollowed(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	s.write("until: " + gate)
	u := newUser(s)
	if err := u.engine.Apply(t.Context(), u.request); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "its step is told", func() bool {
		return u.observe().Operation.Description == "Initiating Kubernetes cluster"
	})
	if seen := u.observe(); seen.Poll == 0 || seen.Applied {
		t.Errorf("while it runs: %+v", seen)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	seen := u.settle()
	if !seen.Applied || seen.Endpoint != "https://10.18.74.175:6443" || seen.KubeconfigPath != filepath.Join(s.dir, "kube_config_aws.yml") {
		t.Errorf("at the end: %+v", seen)
	}
	u.expectCalls("rke up --config aws.yml")
}

// The manager is killed and started again in the middle of rke up: the same run goes on.
func TestARunOutlivesTheManager(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	s.write("until: " + gate)
	u := newUser(s)
	if err := u.engine.Apply(t.Context(), u.request); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		u.restart()
		if o := u.observe().Operation; o == nil || o.State != v1alpha1.OperationProcessing {
			t.Fatalf("after the restart the operation is %+v", o)
		}
		if err := u.engine.Apply(t.Context(), u.request); err != nil { // takes it up
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if seen := u.settle(); !seen.Applied {
		t.Errorf("at the end: %+v", seen)
	}
	u.expectCalls("rke up --config aws.yml")
}

// The run is found by what is in its environment: no second one begins beside it, and a removal ends it.
func TestARunWhoseRecordCannotBeRead(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	s.write("until: " + gate)
	u := newUser(s)
	u.must(u.engine.Apply(t.Context(), u.request))
	harness.Eventually(t, "rke up runs", func() bool { return u.calls() != "" })
	damage := func() {
		u.must(u.engine.Close())
		u.must(os.WriteFile(filepath.Join(s.opts.Dir, string(u.request.UID), "processes", "up", "record.json"), nil, 0o600))
		u.restart()
	}
	damage()
	if err := u.engine.Apply(t.Context(), u.request); !errors.Is(err, cluster.ErrBusy) || !strings.Contains(err.Error(), "processes/up") {
		t.Errorf("Apply while it runs: %v", err)
	}
	u.expectCalls("rke up --config aws.yml")

	u.must(os.WriteFile(gate, nil, 0o600))
	harness.Eventually(t, "rke up has ended", func() bool { return len(processesOf(t, s)) == 0 })
	s.write("until: /nowhere")
	u.must(u.engine.Apply(t.Context(), u.request))
	harness.Eventually(t, "rke up runs again", func() bool { return strings.Count(u.calls(), "rke up") == 2 })
	s.write("")
	damage()
	u.request.Deleting = true
	harness.Eventually(t, "rke up is ended and rke remove begins", func() bool {
		err := u.engine.Delete(t.Context(), u.request)
		if err != nil && !errors.Is(err, cluster.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
	if seen := u.settle(); seen.Exists {
		t.Errorf("something exists: %+v, %+v", seen, seen.Operation)
	}
	u.must(u.engine.Abandon(t.Context(), u.request))
	if left := append(u.left(u.request), processesOf(t, s)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		name, traps string
		timeout     time.Duration
		want        []string
	}{
		{
			name: "a fatal message, with what came before", traps: `fail: "Failed to reach host, password=hunter2"`,
			want: []string{"rke up has failed with exit code 1: Failed to reach host, password=********. Before that: ", "[addons] Executing deploy job"},
		},
		{name: "exit code 0 without success", traps: "silent: true", want: []string{"exit code 0, but never said", "[addons]"}},
		{
			name: "longer than its time, deaf and with a child", traps: "until: /nowhere, deaf: true, child: true", timeout: 3 * time.Second,
			want: []string{"rke up was ended because it took longer than 3s; it was at: Initiating Kubernetes cluster"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.write(tt.traps)
			if tt.timeout != 0 {
				s.opts.Timeout = tt.timeout
			}
			u := newUser(s)
			seen := u.up()
			o := seen.Operation
			if seen.Applied || o == nil || o.State != v1alpha1.OperationFailed || o.Ended.IsZero() {
				t.Fatalf("it has failed, and Observe says %+v, %+v", seen, o)
			}
			for _, want := range tt.want {
				if !strings.Contains(o.Description, want) {
					t.Errorf("the failure is told as %q, without %q", o.Description, want)
				}
			}
			harness.Eventually(t, "no process is left", func() bool { return len(processesOf(t, s)) == 0 })

			// The next manager knows it, too, and a change of the file makes it history.
			u.restart()
			if again := u.observe().Operation; again == nil || again.Description != o.Description || again.Stale {
				t.Errorf("the next manager sees %+v", again)
			}
			s.opts.Timeout = time.Minute
			u.restart()
			s.write("")
			if again := u.observe().Operation; again == nil || !again.Stale {
				t.Errorf("after a change of the file: %+v", again)
			}
			if seen := u.up(); !seen.Applied {
				t.Errorf("without the trap: %+v, %+v", seen, seen.Operation)
			}
		})
	}
}

// processesOf returns the processes with the mark of a site's clusters.
func processesOf(t *testing.T, s *site) []string {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range environs {
		// That of a process that has ended, or of another user, cannot be read.
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "KEELSON_RKE="+s.opts.Dir) {
			found = append(found, path)
		}
	}
	return found
}

func TestWhatAPersonHasToDo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(*user)
		class   error
		says    string
	}{
		{"there is no rke", func(u *user) { u.opts.Binary = "rke-that-is-not-there"; u.restart() }, cluster.ErrUnavailable, "--rke-binary"},
		{"there is no file", func(u *user) { u.must(os.Remove(u.config)) }, cluster.ErrConfig, "aws.yml cannot be used: it does not exist"},
		{"the file is a directory", func(u *user) { u.must(os.Remove(u.config)); u.must(os.Mkdir(u.config, 0o700)) }, cluster.ErrConfig, "not a regular file"},
		{"the file is no YAML", func(u *user) { u.must(os.WriteFile(u.config, []byte("a: [secret"), 0o600)) }, cluster.ErrConfig, "it is not valid YAML"},
		{
			"the state file is gone", func(u *user) {
				u.up()
				u.must(os.Remove(filepath.Join(u.dir, "aws.rkestate")))
			}, cluster.ErrStateMissing, "aws.rkestate is missing",
		},
		{
			"the state file of the original's cluster is gone", func(u *user) { u.request.Applied = "unknown" },
			cluster.ErrStateMissing, "restore it from a backup",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUser(newSite(t))
			tt.prepare(u)
			calls := u.calls()
			if _, err := u.engine.Observe(t.Context(), u.request); !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Observe: %v, want %v that says %q", err, tt.class, tt.says)
			}
			if strings.Contains(tt.name, "state file") && strings.Contains(calls, "up") {
				u.write("", "kubernetes_version: v1.27") // so that there is something to do
			}
			if err := u.engine.Apply(t.Context(), u.request); !errors.Is(err, tt.class) {
				t.Errorf("Apply: %v, want %v", err, tt.class)
			}
			if again := u.calls(); again != calls {
				t.Errorf("rke was called all the same: %s", again)
			}
		})
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// rke keeps files in the directory of the configuration, so two runs there would get in each other's way.
func TestOneRunADirectory(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	s.write("until: " + gate)
	first := newUser(s)
	s.must(first.engine.Apply(t.Context(), first.request))

	other := cluster.Request{Name: "other", UID: "uid-of-other", Spec: v1alpha1.ClusterSpec{ConfigPath: filepath.Join(s.dir, "other.yml")}}
	s.must(os.WriteFile(other.Spec.ConfigPath, []byte("nodes: [{address: 10.0.0.1}]\n"), 0o600))
	err := first.engine.Apply(t.Context(), other)
	if !errors.Is(err, cluster.ErrBusy) || !strings.Contains(err.Error(), "Cluster aws in the same directory") {
		t.Errorf("a second run in the directory: %v, want that it has to wait for aws", err)
	}
	s.must(os.WriteFile(gate, nil, 0o600))
	first.settle()
	s.must(first.engine.Apply(t.Context(), other))
	harness.Eventually(t, "the second is made, too", func() bool {
		seen, err := first.engine.Observe(t.Context(), other)
		return err == nil && seen.Applied
	})
}

// What is told of a configuration is no secret; a change of a secret is noticed all the same.
func TestNoSecretIsTold(t *testing.T) {
	s := newSite(t)
	secrets := []string{"hunter2", "BEGIN RSA", "tok-en", "s3cr3t"}
	more := []string{
		"ssh_key: |-", "  -----BEGIN RSA PRIVATE KEY-----", "  AAAA", "  -----END RSA PRIVATE KEY-----",
		"private_registries:", "- {url: r.example, user: u, password: hunter2}",
		"cloud_provider: {awsCloudProvider: {secretKey: s3cr3t}}", "token: tok-en",
	}
	s.write("", more...)
	u := newUser(s)
	seen := u.up()
	for _, secret := range secrets {
		if strings.Contains(seen.Config, secret) || strings.Contains(seen.Operation.Description, secret) {
			t.Errorf("%s is told: %s", secret, seen.Config)
		}
	}
	for _, plain := range []string{"10.18.74.175", "controlplane", "r.example"} {
		if !strings.Contains(seen.Config, plain) {
			t.Errorf("%s is not told: %s", plain, seen.Config)
		}
	}
	s.write("", append(more, "# ", "bastion_host: {address: b}")...)
	if u.observe().Applied {
		t.Error("another host, and it counts as applied")
	}
	more[5] = strings.Replace(more[5], "hunter2", "hunter3", 1)
	s.write("", more...)
	if u.observe().Applied {
		t.Error("another password, and it counts as applied")
	}
}
