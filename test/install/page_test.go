package install

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// documented returns the block of docs/install.md that begins with a comment that names a file.
func documented(t *testing.T, file string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile("(?s)```[a-z]+\n# " + regexp.QuoteMeta(file) + "\n(.*?)```").FindSubmatch(page)
	if match == nil {
		t.Fatalf("docs/install.md shows no %s", file)
	}
	return string(match[1])
}

// overlayIn writes a kustomization beside a link to the base, and returns its directory.
func overlayIn(t *testing.T, kustomization string) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"config", "api"} {
		source, err := filepath.Abs("../../" + folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(root, "keelson", folder), os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, "mine")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
