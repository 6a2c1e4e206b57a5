//go:build linux

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// rootless reports whether the tests run without root, and so does the node. Then only the node reaches its Pods and Services.
var rootless = os.Geteuid() != 0

// user runs keelson with an account without any files of keelson.
type user struct {
	transcript.Shell
	home, data string
	before     map[string][]string // traces of nodes on the machine
	without    []string            // programs hidden from up
}

// newUser returns a user, or skips the test where no real node can run. At the end of the test no
// traces may be left on the machine.
func newUser(t *testing.T) *user {
	t.Helper()
	env.RealNode(t)
	return newAccount(t)
}

// step is a subtest of a test that goes on with what the earlier ones have left.
type step struct {
	name string
	run  func(*testing.T, *user)
}

// steps runs the steps until one fails: later ones depend on it.
func (u *user) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, u) }) {
			return
		}
	}
}

// newAccount is like newUser for another account on the same machine.
func newAccount(t *testing.T) *user {
	t.Helper()
	home := t.TempDir()
	u := &user{home: home, data: filepath.Join(home, "data")}
	u.Env = map[string]string{"HOME": home, "KUBECONFIG": filepath.Join(u.data, "kubeconfig")}
	u.before = traces(t, u.data)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the node:\n%s", u.log())
		}
		// Without root some files of the node have other owners, and the test cannot delete them.
		u.Run(t, "keelson", "down", "--data-dir", u.data, fmt.Sprintf("--delete-data=%t", rootless))
		if t.Failed() {
			return // the test has already failed
		}
		u.isAsBefore(t)
	})
	return u
}

// log returns the end of the node's log.
func (u *user) log() string {
	data, err := os.ReadFile(filepath.Join(u.data, "logs", "node.log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-20_000):])
}

// traces are the possible leftovers of a node on the machine. Those of other programs may change at
// any time.
func traces(t *testing.T, data string) map[string][]string {
	t.Helper()
	found := map[string][]string{"processes": transcript.Left(data)}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		for _, part := range []string{data, "k8s.io", "kubelet", "/run/keelson", "cni"} {
			if strings.Contains(line, part) {
				found["mounts"] = append(found["mounts"], line)
				break
			}
		}
	}
	delegated := "/sys/fs/cgroup/user.slice/*/user@*.service/*/*/keelson-*" // in a scope, in a slice of the user
	for what, patterns := range map[string][]string{
		"links":   {"/sys/class/net/*"},
		"cgroups": {"/sys/fs/cgroup/*/keelson-*", "/sys/fs/cgroup/keelson-*", delegated},
		"folders": {"/run/keelson", "/run/netns/cni-*", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/usr/libexec/kubernetes"},
	} {
		for _, pattern := range patterns {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			found[what] = append(found[what], paths...)
		}
	}
	// Other nodes and programs have their own links and cgroups.
	own := nodeIDs(t, data)
	found["links"] = slices.DeleteFunc(found["links"], func(path string) bool {
		name := filepath.Base(path)
		id, isNode := strings.CutPrefix(name, "kn-")
		return (!isNode || !slices.Contains(own, id)) && !strings.HasPrefix(name, "cni") && !strings.HasPrefix(name, "veth")
	})
	found["cgroups"] = slices.DeleteFunc(found["cgroups"], func(path string) bool {
		return !slices.Contains(own, strings.TrimPrefix(filepath.Base(path), "keelson-"))
	})
	for _, program := range []string{"iptables-save", "ip6tables-save", "nft"} {
		path, err := exec.LookPath(program)
		if err != nil || rootless { // rules are only for root to see, and to change
			continue
		}
		args := []string{}
		if program == "nft" {
			args = []string{"list", "ruleset"}
		}
		out, err := exec.Command(path, args...).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		for line := range strings.Lines(string(out)) {
			for _, part := range []string{"KUBE-", "CNI-", "KEELSON-", "kube-proxy", "cni_hostport", "table ip keelson", "table ip6 keelson"} {
				if strings.Contains(line, part) {
					found[program] = append(found[program], line)
					break
				}
			}
		}
	}
	for _, sysctl := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", sysctl))
		if err != nil && (!strings.Contains(sysctl, "ipv6") || !errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
		found["sysctl"] = append(found["sysctl"], sysctl+" "+strings.TrimSpace(string(value)))
	}
	return found
}

// nodeIDs returns the parts of names that identify the nodes on the machine, of those that were ever started.
func nodeIDs(t *testing.T, data string) (ids []string) {
	t.Helper()
	for index := range node.MaxNodes {
		text, err := os.ReadFile(filepath.Join(node.Dir(data, index), "settings.json"))
		if err != nil {
			continue
		}
		var settings struct{ ID string }
		if err := json.Unmarshal(text, &settings); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, settings.ID)
	}
	return ids
}

// isAsBefore waits until the machine has its original traces, except for some kinds. The kernel
// takes a moment to remove namespaces.
func (u *user) isAsBefore(t *testing.T, except ...string) {
	t.Helper()
	transcript.Eventually(t, "the machine has its original traces", func() bool {
		now := traces(t, u.data)
		for what := range now {
			if !slices.Contains(except, what) && !slices.Equal(now[what], u.before[what]) {
				t.Logf("%s: were %q, are %q", what, u.before[what], now[what])
				return false
			}
		}
		return true
	})
}

// status returns the report of keelson status.
func (u *user) status(t *testing.T) controlplane.Report {
	t.Helper()
	result := u.Run(transcript.Quietly(t), "keelson", "status", "--data-dir", u.data, "--output", "json")
	var report controlplane.Report
	if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil {
		t.Fatalf("keelson status: %v", err)
	}
	return report
}

// kubectl runs a kubectl command that must succeed.
func (u *user) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return u.OK(t, append([]string{"kubectl"}, args...)...)
}

func (u *user) apply(t *testing.T, manifest string) {
	t.Helper()
	shell := u.Shell
	shell.Stdin = manifest
	shell.OK(t, "kubectl", "apply", "-f", "-")
}

// field reads fields of an object by a JSONPath template.
func (u *user) field(t *testing.T, object, template string) string {
	t.Helper()
	return u.kubectl(t, "get", object, "-o", "jsonpath="+template)
}

// loadApp builds a version of the program app, and loads it as the image app of that version.
func (u *user) loadApp(t *testing.T, version string) {
	t.Helper()
	folder := t.TempDir()
	buildApp(t, folder, version)
	out := u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, "--name", "app:"+version, folder)
	transcript.Contains(t, out, "docker.io/library/app:"+version+"\n")
}

// appsVariable is the environment variable, for machines without Go, of the folder with all
// versions of the program app: app-v1 and so on.
const appsVariable = "KEELSON_TEST_APPS"

// buildApp builds the root file system of the image: the program app, which is also tar.
func buildApp(t *testing.T, folder, version string) {
	t.Helper()
	app := filepath.Join(folder, "app")
	build := exec.Command("go", "build", "-ldflags", "-s -w -X main.version="+version, "-o", app, "./app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if apps := os.Getenv(appsVariable); apps != "" {
		build = exec.Command("cp", filepath.Join(apps, "app-"+version), app)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the app: %v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../app", filepath.Join(folder, "bin", "tar")); err != nil {
		t.Fatal(err)
	}
}
