package life

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongQuickstart runs the commands of docs/quickstart.md in one shell, as a new user.
func TestLongQuickstart(t *testing.T) {
	for _, program := range []string{"qemu-system-x86_64", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	page, err := os.ReadFile("../../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Builder{}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		script.WriteString(block[1])
	}
	examples, err := filepath.Abs("../../../examples")
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := env.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	work := m.path("work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(work, "examples")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eux") // sh has aliases in scripts
	cmd.Stdin = strings.NewReader(script.String())
	cmd.Dir = work
	cmd.Env = []string{"HOME=" + m.home, "TMPDIR=" + m.path("tmp"), "KEELSON_NODE=" + m.Env["KEELSON_NODE"], "PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH")}
	output, err := cmd.CombinedOutput()
	if t.Logf("%s", output); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"example-foo   3", "\nquickstart   Running ", "\nquickstart\n", "\nwritten at ", "Succeeded", "No container was started",
		"namespace/kube-system", "The data in " + m.data() + " is deleted.",
	} {
		transcript.Contains(t, string(output), want)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}
