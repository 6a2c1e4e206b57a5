//go:build linux

package node

import (
	"os"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// cpuLimit checks the limit in the kernel; the file depends on the version of cgroups.
func cpuLimit(t *testing.T, u *user) {
	u.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  containers:
  - {name: slow, image: "app:v1", resources: {limits: {cpu: 200m}}}
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/slow", "--timeout", transcript.WaitTimeout.String())
	file, want := "cpu.max", "20000 100000" // microseconds per period
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		file, want = "cpu/cpu.cfs_quota_us", "20000"
	}
	if got := strings.TrimSpace(u.kubectl(t, "exec", "slow", "--", "/app", "show", "/sys/fs/cgroup/"+file)); got != want {
		t.Errorf("%s of its cgroup is %q, want %q", file, got, want)
	}
	u.kubectl(t, "delete", "pod", "slow")
}
