package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongClusterPage runs the commands of the pages about Clusters, one after the other.
func TestLongClusterPage(t *testing.T) {
	s := clusterSession(t)
	dir := t.TempDir()
	// Files of a user who migrates from RKE.
	config := "nodes:\n- {address: 127.0.0.1, user: ops, role: [controlplane, worker, etcd]}\n"
	if err := os.WriteFile(filepath.Join(dir, "cluster.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"cluster.md", "cluster-nodes.md", "cluster-upgrade.md", "cluster-stop.md", "cluster-snapshots.md", "cluster-access.md", "engines.md"} {
		s.types(t, page, dir)
	}
	s.kubectl(t, "delete", "cluster", "demo", "taken-over", "copy")
	const snapshot = "clustersnapshot/before"
	files := filepath.Join(stateDir, "cluster-snapshots", s.field(t, snapshot, "{.metadata.uid}"))
	s.wait(t, "condition=Ready", snapshot) // it outlives its Cluster
	s.kubectl(t, "delete", snapshot)
	s.kubectl(t, "delete", "clustersnapshots", "--selector", "cluster.x-k8s.io/cluster-name=demo")
	if _, err := os.Stat(files); !os.IsNotExist(err) {
		t.Errorf("the files of the deleted snapshot: %v", err)
	}
}

func TestFooPage(t *testing.T) { followPage(t, "foo.md") }

func TestSampleResourcePage(t *testing.T) { followPage(t, "sampleresource.md") }

func TestCronTabPage(t *testing.T) {
	followPage(t, "crontab.md", "crontab-after.md", "crontab-tasks.md")
}

func TestSchedulesPage(t *testing.T) { followPage(t, "crontab-schedules.md") }

func TestVirtualMachinePage(t *testing.T) {
	needQEMU(t)
	followPage(t, "virtualmachine.md", "virtualmachine-conditions.md")
}

func TestLongDisksPage(t *testing.T) {
	needQEMU(t)
	s := followPage(t, "disks.md", "virtual-disks.md")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

func TestAccessPage(t *testing.T) {
	needQEMU(t)
	followPage(t, "access-api.md")
}

func TestLongGuestPage(t *testing.T) {
	needQEMU(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	followPage(t, "guest.md")
}

func TestLongGitOpsPage(t *testing.T) {
	needQEMU(t)
	s := followPage(t, "gitops.md")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

func TestLongVirtualNetworksPage(t *testing.T) {
	needQEMU(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	followPage(t, "virtual-networks.md")
}

func TestLongSleepPage(t *testing.T) {
	needQEMU(t)
	followPage(t, "sleep.md")
}

func TestLongSnapshotsPage(t *testing.T) {
	needQEMU(t)
	s := followPage(t, "snapshots.md", "snapshots-fork.md")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

func TestLongVirtualMachineSetsPage(t *testing.T) {
	needQEMU(t)
	s := followPage(t, "virtualmachinesets.md")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

func TestSecurityPage(t *testing.T) {
	s := followPage(t, "security.md")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

// followPage runs the commands of pages, one after the other, in a new namespace.
func followPage(t *testing.T, pages ...string) session {
	t.Helper()
	t.Parallel()
	s, dir := newSession(t), t.TempDir()
	for _, page := range pages {
		s.types(t, page, dir)
	}
	return s
}

// types runs the commands of a page in a directory, as a user with a kubeconfig for the namespace of
// the session.
func (s session) types(t *testing.T, page, dir string) {
	t.Helper()
	config, err := os.ReadFile(s.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	s.Env["KUBECONFIG"] = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(s.Env["KUBECONFIG"], config, 0o600); err != nil {
		t.Fatal(err)
	}
	s.OK(t, "kubectl", "config", "set-context", "--current", "--namespace", s.namespace)
	for _, block := range transcript.Commands(t, filepath.Join("..", "..", "docs", page)) {
		s.Script(t, dir, block)
	}
}
