package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestDir(t *testing.T) {
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		args  []string
		home  string
		xdg   string
		want  string
		fails bool
	}{
		{name: "the home directory", home: "/home/me", want: "/home/me/.local/share/keelson"},
		{name: "XDG_DATA_HOME", home: "/home/me", xdg: "/data/me", want: "/data/me/keelson"},
		{name: "a relative XDG_DATA_HOME is ignored", home: "/home/me", xdg: "data", want: "/home/me/.local/share/keelson"},
		{name: "no home directory, but XDG_DATA_HOME", xdg: "/data/me", want: "/data/me/keelson"},
		{name: "no home", fails: true},
		{name: "--data-dir", args: []string{"--data-dir", "/there"}, want: "/there"},
		{name: "a relative --data-dir", args: []string{"--data-dir", "there"}, home: "/home/me", want: filepath.Join(working, "there")},
		{name: "ephemeral", args: []string{"--ephemeral"}, home: "/home/me", want: fmt.Sprintf("/tmp/x/keelson-ephemeral-%d", os.Getuid())},
		{name: "ephemeral with --data-dir", args: []string{"--ephemeral", "--data-dir", "/there"}, want: "/there"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("HOME", test.home)
			t.Setenv("XDG_DATA_HOME", test.xdg)
			t.Setenv("TMPDIR", "/tmp/x")
			var flags Flags
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			flags.AddFlags(fs)
			if err := fs.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			got, err := flags.Dir()
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("got %q and error %v, want %q", got, err, test.want)
			}
		})
	}
}

// A directory that another user has prepared is rejected unread.
func TestForeignDir(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, dir, want string }{
		{"a link", filepath.Join(dir, "link"), "the data directory DIR is a symbolic link: set --data-dir to its target"},
		{"a file", filepath.Join(dir, "file"), "the data directory DIR is not a directory: choose another with --data-dir"},
		{"below a file", filepath.Join(dir, "file", "data"), ""},
		{"a comma", "/srv/a,b", "the data directory \"/srv/a,b\" has ',' in its path, which kwok or kubectl cannot handle: choose another with --data-dir"},
		{"another user's", notOurs(t), "the data directory DIR belongs to another user: choose another with --data-dir"},
	} {
		t.Run(test.name, func(t *testing.T) {
			flags := Flags{DataDir: test.dir}
			_, err := flags.Dir()
			if test.want == "" && err == nil {
				return
			}
			if want := replaceDir(test.want, test.dir); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// notOurs returns a directory of another user: as root one that it gives away, otherwise one of
// root.
func notOurs(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		return "/"
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCommand(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("TMPDIR", "/tmp/x")
	for _, test := range []struct{ name, dir, want string }{
		{"the default", "/home/me/.local/share/keelson", "keelson down"},
		{"the ephemeral default", fmt.Sprintf("/tmp/x/keelson-ephemeral-%d", os.Getuid()), "keelson down --ephemeral"},
		{"elsewhere", "/srv/keelson", "keelson down --data-dir /srv/keelson"},
		{"elsewhere, with a space", "/srv/my data", "keelson down --data-dir '/srv/my data'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Command("down", test.dir); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestSecure(t *testing.T) {
	for _, test := range []struct {
		name      string
		prepare   func(t *testing.T, dir string)
		ephemeral bool
		want      string // DIR stands for the directory
	}{
		{name: "it does not exist", prepare: func(*testing.T, string) {}},
		{name: "it is empty", prepare: func(t *testing.T, dir string) { mkdir(t, dir, 0o700) }},
		{name: "it is empty and open to others", prepare: func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }},
		{
			name: "keelson was killed right after creating it",
			prepare: func(t *testing.T, dir string) {
				secure(t, dir)
				mkdir(t, filepath.Join(dir, "logs"), 0o700)
			},
			ephemeral: true,
		},
		{
			name:    "it holds a durable control plane",
			prepare: durable,
		},
		{
			name:      "it holds a durable control plane, which --ephemeral would delete",
			prepare:   durable,
			ephemeral: true,
			want:      "the objects in DIR are persistent, and --ephemeral would delete them: omit --ephemeral, or choose another directory with --data-dir",
		},
		{
			name: "it holds an ephemeral control plane after a crash",
			prepare: func(t *testing.T, dir string) {
				secure(t, dir)
				write(t, dir, "state.json", `{"port":20000,"ephemeral":true}`)
			},
			ephemeral: true,
		},
		{
			name:    "it holds something else",
			prepare: func(t *testing.T, dir string) { mkdir(t, dir, 0o755); write(t, dir, "letter", "Dear") },
			want:    "DIR is not a data directory of keelson: it contains other files, such as letter; choose another with --data-dir",
		},
		{
			name:    "it is a file",
			prepare: func(t *testing.T, dir string) { write(t, filepath.Dir(dir), filepath.Base(dir), "") },
			want:    "create the data directory: mkdir DIR: not a directory; choose another with --data-dir",
		},
		{
			name: "it is a symbolic link",
			prepare: func(t *testing.T, dir string) {
				if err := os.Symlink(t.TempDir(), dir); err != nil {
					t.Fatal(err)
				}
			},
			want: "the data directory DIR is a symbolic link: set --data-dir to its target",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			test.prepare(t, dir)
			before := list(t, dir)
			err := Secure(t.Context(), dir, test.ephemeral)
			if test.want != "" {
				if want := replaceDir(test.want, dir); err == nil || err.Error() != want {
					t.Errorf("got error  %v\nwant error %s", err, want)
				}
				if after := list(t, dir); after != before {
					t.Errorf("it was changed from %s to %s", before, after)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || !isMarked(dir) {
				t.Errorf("it is not private and marked: %v, %v", info, err)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := Remove(dir); err != nil {
		t.Errorf("it no longer exists: %v", err)
	}
	mkdir(t, dir, 0o755)
	write(t, dir, "state.json", "{}") // a name that any program may use
	if err := Remove(dir); err == nil || list(t, dir) != "[state.json]" {
		t.Errorf("foreign directory: error %v, left %s", err, list(t, dir))
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	secure(t, dir)
	mkdir(t, filepath.Join(dir, "zz"), 0o700)
	write(t, dir, "aa", "")
	if err := Remove(dir); err != nil || list(t, dir) != "[]" {
		t.Errorf("own directory: error %v, left %s", err, list(t, dir))
	}
}

func secure(t *testing.T, dir string) {
	t.Helper()
	if err := Secure(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
}

// durable creates a directory with a durable control plane.
func durable(t *testing.T, dir string) {
	t.Helper()
	secure(t, dir)
	write(t, dir, "state.json", `{"port":20000}`)
	mkdir(t, filepath.Join(dir, "processes"), 0o700)
}

func mkdir(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(dir, mode); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// list returns the names in a directory; none if it does not exist.
func list(t *testing.T, dir string) string {
	t.Helper()
	entries, _ := os.ReadDir(dir) // a file has no entries
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return fmt.Sprint(names)
}

func replaceDir(text, dir string) string { return strings.ReplaceAll(text, "DIR", dir) }
