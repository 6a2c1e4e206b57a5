package life

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func TestLongQuickstart(t *testing.T) {
	follow(t, "quickstart.md", []string{"qemu-system-x86_64", "ssh", "ssh-keygen"},
		"\nquickstart   Running ", "\nquickstart\n", "\nwritten at ", "Succeeded", "No container was started",
		"namespace/kube-system", deleted)
}

func TestLongTutorialMachine(t *testing.T) {
	follow(t, "tutorial-machine.md", []string{"qemu-system-x86_64", "ssh", "ssh-keygen", "curl", "pkill"},
		"<h1>Version 1</h1>", "<h1>Version 2</h1>", "ServerRestarted", "RESTARTS", "\n2\n", "/machines/retained/default/web/", deleted)
}

func TestLongTutorialSchedule(t *testing.T) {
	follow(t, "tutorial-schedule.md", nil,
		"Europe/Berlin", "Succeeded", "Failed", "DeadlineExceeded", "JobFailed", "MissSchedule", " runs were missed\n", deleted)
}

func TestLongTutorialClusters(t *testing.T) {
	follow(t, "tutorial-clusters.md", nil,
		"not outside of shop", "the cluster is protected", "Stopped in ", "deployment.apps/web", deleted)
}

func TestLongCIPage(t *testing.T) {
	follow(t, "ci.md", nil, `deployment "web" successfully rolled out`, "fixtures   Active", deleted)
}

func TestLongMonitoringPage(t *testing.T) {
	follow(t, "monitoring.md", []string{"curl"}, "\nkeelson_build_info{")
}

func TestLongFiftyMachinesPage(t *testing.T) {
	follow(t, "fifty-machines.md", []string{"qemu-system-x86_64", "ssh", "ssh-keygen"}, "\nfleet-0\n", "\nfleet-1\n", deleted)
}

func TestLongTeamPage(t *testing.T) {
	follow(t, "team.md", nil, "\nyes\n", "only in the namespace", deleted)
}

func TestLongRunningPage(t *testing.T) {
	follow(t, "running.md", nil, "kube-apiserver ", "simulated-2 ", "Nothing is kept")
}

func TestLongDriversPage(t *testing.T) {
	follow(t, "drivers.md", nil, "pretended   Running")
}

func TestLongImagesPage(t *testing.T) {
	follow(t, "images.md", []string{"qemu-system-x86_64", "qemu-img"}, "virtualmachineimage/empty is ready", "\nempty   True ", "virtualmachineimage/empty deleted")
}

// deleted is the output of keelson down --delete-data.
const deleted = "/keelson is deleted."

// follow runs the commands of a page in one shell, as a new user, in a directory where they must leave
// nothing behind. The output must have the texts in want.
func follow(t *testing.T, page string, programs []string, want ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	m := newMachine(t)
	work := m.path("work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	script := strings.Join(transcript.Commands(t, filepath.Join("..", "..", "..", "docs", page)), "")
	output := m.Script(t, work, script)
	transcript.Contains(t, output, want...)
	if left, err := os.ReadDir(work); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}
