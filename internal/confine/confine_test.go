package confine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/confine"
)

// site has a directory that is allowed, one beside it that is not, and links between them.
func site(t *testing.T) (allowed, secret string, dirs confine.Dirs) {
	t.Helper()
	base := t.TempDir()
	allowed, secret = filepath.Join(base, "allowed"), filepath.Join(base, "secret")
	for _, dir := range []string{allowed, secret, filepath.Join(allowed, "sub"), allowed + "-beside"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content of "+filepath.Base(dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"in": "sub/file", "out": "../secret/file", "absolute": filepath.Join(secret, "file"), "dir-out": "../secret", "twice": "out", "sub/up": "../file",
		"dangling": "../secret/none",
	} {
		if err := os.Symlink(target, filepath.Join(allowed, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(allowed, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return allowed, secret, confine.Dirs{filepath.Join(base, "other"), allowed}
}

func TestReadFile(t *testing.T) {
	allowed, secret, dirs := site(t)
	tests := []struct {
		name, path, want string
		err              error
	}{
		{name: "a file", path: allowed + "/file", want: "content of allowed"},
		{name: "in a folder", path: allowed + "/sub/file", want: "content of sub"},
		{name: "the long way", path: allowed + "/sub/../sub/./file", want: "content of sub"},
		{name: "a link that stays inside", path: allowed + "/in", want: "content of sub"},
		{name: "a link upwards that stays inside", path: allowed + "/sub/up", want: "content of allowed"},
		{name: "there is none", path: allowed + "/none", err: fs.ErrNotExist},
		{name: "a directory that is not there", path: filepath.Dir(allowed) + "/other/file", err: fs.ErrNotExist},
		{name: "beside", path: secret + "/file", err: confine.ErrOutside},
		{name: "a name that begins the same", path: allowed + "-beside/file", err: confine.ErrOutside},
		{name: "out by dots", path: allowed + "/../secret/file", err: confine.ErrOutside},
		{name: "out by dots, deep", path: allowed + "/sub/../../secret/file", err: confine.ErrOutside},
		{name: "out by a link", path: allowed + "/out", err: confine.ErrOutside},
		{name: "out by a link to a link", path: allowed + "/twice", err: confine.ErrOutside},
		{name: "out by an absolute link", path: allowed + "/absolute", err: confine.ErrOutside},
		{name: "through a folder that leads out", path: allowed + "/dir-out/file", err: confine.ErrOutside},
		{name: "out to what is not there", path: allowed + "/dangling", err: confine.ErrOutside},
		{name: "the directory itself", path: allowed, err: confine.ErrOutside},
		{name: "a folder", path: allowed + "/sub", err: confine.ErrKind},
		{name: "a pipe, which would be waited for", path: allowed + "/pipe", err: confine.ErrKind},
		{name: "a relative path", path: "file", err: confine.ErrForm},
		{name: "a path like a flag", path: "--help", err: confine.ErrForm},
		{name: "a line break", path: allowed + "/file\n", err: confine.ErrForm},
		{name: "nothing", path: "", err: confine.ErrForm},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := dirs.ReadFile(tt.path, 100)
			if string(got) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
			if err != nil && strings.Contains(err.Error(), "content of") {
				t.Errorf("the error tells what is in the file: %v", err)
			}
		})
	}
}

func TestReadFileOfALimit(t *testing.T) {
	allowed, _, dirs := site(t)
	size := int64(len("content of allowed"))
	if _, err := dirs.ReadFile(allowed+"/file", size); err != nil {
		t.Errorf("just as large: %v", err)
	}
	if got, err := dirs.ReadFile(allowed+"/file", size-1); !errors.Is(err, confine.ErrSize) || got != nil {
		t.Errorf("too large: got %q, %v", got, err)
	}
}

func TestNowhereAndAnywhere(t *testing.T) {
	allowed, _, _ := site(t)
	if _, err := (confine.Dirs)(nil).ReadFile(allowed+"/file", 100); !errors.Is(err, confine.ErrOutside) {
		t.Errorf("without any directory: %v", err)
	}
	for _, link := range []string{"/out", "/absolute", "/dir-out/file"} {
		if got, err := confine.Anywhere.ReadFile(allowed+link, 100); err != nil || string(got) != "content of secret" {
			t.Errorf("anywhere, through %s: got %q, %v", link, got, err)
		}
	}
	if _, err := confine.Anywhere.ReadFile(allowed+"/pipe", 100); !errors.Is(err, confine.ErrKind) {
		t.Errorf("anywhere, a pipe: %v", err)
	}
	if _, err := confine.Anywhere.Check("relative"); !errors.Is(err, confine.ErrForm) {
		t.Errorf("anywhere, a relative path: %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	allowed, secret, dirs := site(t)
	path := allowed + "/new/deep/file"
	if err := dirs.WriteFile(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, path := range []string{allowed + "/out", allowed + "/dir-out/new", allowed + "/dangling", secret + "/new", allowed + "/../secret/new"} {
		if err := dirs.WriteFile(path, []byte("x")); !errors.Is(err, confine.ErrOutside) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, err := os.ReadFile(secret + "/file"); err != nil || string(got) != "content of secret" {
		t.Errorf("the secret is now %q, %v", got, err)
	}
	if left, _ := filepath.Glob(secret + "/*"); len(left) != 1 {
		t.Errorf("written outside: %v", left)
	}
	if err := confine.Anywhere.WriteFile(secret+"/a/b", []byte("x")); err != nil {
		t.Errorf("anywhere: %v", err)
	}
}

func TestValidate(t *testing.T) {
	if err := (confine.Dirs{"/a", "b"}).Validate(); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a relative directory: %v", err)
	}
	if err := (confine.Dirs{"/a", "/"}).Validate(); err != nil {
		t.Error(err)
	}
}

// Whoever named a file with secrets learns why it is not read, and nothing of what is in it.
func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"good": 5, "limit": confine.SecretLimit, "large": confine.SecretLimit + 1} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, path string
		size       int
		want       string
	}{
		{"a file", filepath.Join(dir, "good"), 5, ""},
		{"one as large as a Secret", filepath.Join(dir, "limit"), confine.SecretLimit, ""},
		{"a larger one", filepath.Join(dir, "large"), 0, "it is not a regular file of at most 1 MiB"},
		{"a directory", dir + "/.", 0, confine.ErrOutside.Error()},
		{"none", filepath.Join(dir, "none"), 0, "it does not exist"},
		{"a relative path", "good", 0, confine.ErrForm.Error()},
		{"one elsewhere", "/etc/passwd", 0, confine.ErrOutside.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			content, err := confine.Dirs{dir}.ReadSecret(tc.path)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if len(content) != tc.size || got != tc.want {
				t.Errorf("got %d bytes and %q, want %d and %q", len(content), got, tc.size, tc.want)
			}
		})
	}
}
