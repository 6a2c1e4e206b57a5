package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of an image changes with everything that a container sees of the folder, and with nothing else.
func TestNewImage(t *testing.T) {
	make := func(change func(folder string) error) string {
		t.Helper()
		folder := t.TempDir()
		if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "bin", "app"), []byte("text"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := change(folder); err != nil {
			t.Fatal(err)
		}
		image, err := NewImage("app", folder, "/bin/app")
		if err != nil {
			t.Fatal(err)
		}
		return image.Name
	}
	first := make(func(string) error { return nil })
	if !strings.HasPrefix(first, "keelson.dev/app:") {
		t.Errorf("it is called %s", first)
	}
	if again := make(func(string) error { return nil }); again != first {
		t.Errorf("the same files are called %s and %s", first, again)
	}
	for what, change := range map[string]func(app string) error{
		"other content":   func(app string) error { return os.WriteFile(app, []byte("next"), 0o755) },
		"another mode":    func(app string) error { return os.Chmod(app, 0o644) },
		"another name":    func(app string) error { return os.Rename(app, app+"2") },
		"one file more":   func(app string) error { return os.WriteFile(app+"2", nil, 0o755) },
		"a link to it":    func(app string) error { return os.Symlink("app", app+"2") },
		"one folder more": func(app string) error { return os.Mkdir(app+"2", 0o755) },
	} {
		if got := make(func(folder string) error { return change(filepath.Join(folder, "bin", "app")) }); got == first {
			t.Errorf("%s: it is called as before", what)
		}
	}
	if _, err := NewImage("app", filepath.Join(t.TempDir(), "missing"), ""); err == nil {
		t.Error("a folder that is missing has an image")
	}
}
