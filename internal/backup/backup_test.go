package backup

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Restore writes only what was saved, and only in the data directory.
func TestExtract(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		entry  string          // name of the file in the archive
		change func(*Manifest) // before it is added
		cut    int             // bytes that are missing at the end
		want   string          // part of the error
	}{
		{name: "intact", entry: "pki/ca.key"},
		{name: "a file has changed", entry: "pki/ca.key", change: func(m *Manifest) { m.Digests["pki/ca.key"] = "other" }, want: "the digest of pki/ca.key does not match"},
		{name: "a file is missing", entry: "pki/ca.key", change: func(m *Manifest) { m.Digests["state.json"] = "any" }, want: "files are missing"},
		{name: "the end is missing", entry: "pki/ca.key", cut: 200, want: "is damaged"},
		{name: "a later format", entry: "pki/ca.key", change: func(m *Manifest) { m.Format = format + 1 }, want: "which only another version of keelson can restore"},
		{name: "a file outside", entry: "../outside", want: "is damaged"},
		{name: "an absolute path", entry: "/outside", want: "is damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			source, file, dir := filepath.Join(folder, "source"), filepath.Join(folder, "archive"), filepath.Join(folder, "data")
			if err := os.WriteFile(source, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			out, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			compressed := gzip.NewWriter(out)
			archive := tar.NewWriter(compressed)
			digest, err := addFile(archive, test.entry, source)
			if err != nil {
				t.Fatal(err)
			}
			manifest := Manifest{Format: format, Digests: map[string]string{test.entry: digest}}
			if test.change != nil {
				test.change(&manifest)
			}
			if err := addManifest(archive, manifest); err != nil {
				t.Fatal(err)
			}
			for _, w := range []interface{ Close() error }{archive, compressed, out} {
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(file, info.Size()-int64(test.cut)); err != nil {
				t.Fatal(err)
			}

			_, err = extract(t.Context(), file, dir)
			if test.want == "" {
				data, readErr := os.ReadFile(filepath.Join(dir, test.entry))
				if err != nil || string(data) != "content" {
					t.Errorf("%v, %q, %v", err, data, readErr)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			for _, path := range []string{filepath.Join(folder, "outside"), "/outside"} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s was written", path)
				}
			}
		})
	}
}

// A foreign directory with the name of a workspace is left alone.
func TestRestoreLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	theirs := filepath.Join(dir+workspaceSuffix, "theirs")
	if err := os.MkdirAll(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Restore(t.Context(), "any", dir, "any", func(string) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
}
