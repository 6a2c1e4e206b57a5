package transcript

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

var commands = regexp.MustCompile("(?s)```sh\n(.*?)```")

// Commands returns the commands of a page in docs: its blocks of code in the language sh, in their
// order. A block with more words after sh is not for tests.
func Commands(t testing.TB, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, match := range commands.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, match[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no commands", page)
	}
	return blocks
}

// Script runs a shell script in a directory, which gets a link to the examples of the repository, and
// returns its output. The test fails if a command of the script does.
func (s Shell) Script(t testing.TB, directory, script string) string {
	t.Helper()
	keelson, err := env.Binary("keelson")
	if err != nil {
		t.Fatal(err)
	}
	examples := filepath.Join(filepath.Dir(filepath.Dir(keelson)), "examples")
	if err := os.Symlink(examples, filepath.Join(directory, "examples")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "script") // not the standard input, which ssh would read
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eux", file) // unlike bash, sh has aliases in scripts
	cmd.Dir = directory
	cmd.Env = []string{"PATH=" + filepath.Dir(keelson) + ":" + os.Getenv("PATH")}
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output, err := cmd.CombinedOutput()
	if t.Logf("%s", output); err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	return string(output)
}
