package instance

import (
	"fmt"
	"os"
	"os/exec"
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
		{name: "the user keeps data elsewhere", home: "/home/me", xdg: "/data/me", want: "/data/me/keelson"},
		{name: "the specification has relative paths ignored", home: "/home/me", xdg: "data", want: "/home/me/.local/share/keelson"},
		{name: "no home, but a place for data", xdg: "/data/me", want: "/data/me/keelson"},
		{name: "no home", fails: true},
		{name: "a place is named", args: []string{"--data-dir", "/there"}, want: "/there"},
		{name: "a relative place is named", args: []string{"--data-dir", "there"}, home: "/home/me", want: filepath.Join(working, "there")},
		{name: "ephemeral", args: []string{"--ephemeral"}, home: "/home/me", want: fmt.Sprintf("/tmp/x/keelson-ephemeral-%d", os.Getuid())},
		{name: "ephemeral in a place that is named", args: []string{"--ephemeral", "--data-dir", "/there"}, want: "/there"},
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

// Nobody looks into a directory that somebody else has prepared.
func TestDirOfSomebodyElse(t *testing.T) {
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

// notOurs returns a directory of another user: one that the administrator gives away, or that of the administrator.
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
		{"where it looks by itself", "/home/me/.local/share/keelson", "keelson down"},
		{"where ephemeral ones are", fmt.Sprintf("/tmp/x/keelson-ephemeral-%d", os.Getuid()), "keelson down --ephemeral"},
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

// What is quoted comes out of a real shell as it went in.
func TestQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "/a/b-c_d.e:f", "a b", "it's", `"$HOME"`, "a\nb", `\`, "~", "*", "a;b", "#", "-n", "ü"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q was quoted as %s, and came out as %q, %v", word, Quote(word), out, err)
		}
	}
	if got := Quote("/plain/path"); got != "/plain/path" {
		t.Errorf("a plain word was quoted as %s", got)
	}
}

func TestSecure(t *testing.T) {
	for _, test := range []struct {
		name      string
		prepare   func(t *testing.T, dir string)
		ephemeral bool
		want      string // the error; DIR stands for the directory
	}{
		{name: "it does not exist", prepare: func(*testing.T, string) {}},
		{name: "it is empty", prepare: func(t *testing.T, dir string) { mkdir(t, dir, 0o700) }},
		{name: "it is empty and open to others", prepare: func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }},
		{
			name: "it was made here, and keelson was killed at once",
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
			name:      "it holds a durable control plane, which would be deleted in the end",
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
			name: "it is a link, which somebody else may change",
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
				t.Errorf("it is not closed and marked: %v, %v", info, err)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := Remove(dir); err != nil {
		t.Errorf("it is gone already: %v", err)
	}
	mkdir(t, dir, 0o755)
	write(t, dir, "state.json", "{}") // anybody's name for a file
	if err := Remove(dir); err == nil || list(t, dir) != "[state.json]" {
		t.Errorf("it is somebody else's: error %v, left %s", err, list(t, dir))
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	secure(t, dir)
	mkdir(t, filepath.Join(dir, "zz"), 0o700)
	write(t, dir, "aa", "")
	if err := Remove(dir); err != nil || list(t, dir) != "[]" {
		t.Errorf("it is ours: error %v, left %s", err, list(t, dir))
	}
}

func secure(t *testing.T, dir string) {
	t.Helper()
	if err := Secure(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
}

// durable makes a directory in which a control plane was started that is to be kept.
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

// list returns the names in a directory, none if there is no directory.
func list(t *testing.T, dir string) string {
	t.Helper()
	entries, _ := os.ReadDir(dir) // of a file, too, there is nothing to list
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return fmt.Sprint(names)
}

func replaceDir(text, dir string) string { return strings.ReplaceAll(text, "DIR", dir) }
