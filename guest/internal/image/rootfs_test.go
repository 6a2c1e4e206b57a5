package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is what matters of a file in an archive.
type entry struct {
	Type    byte
	Mode    int64
	Link    string
	Content string
}

// unpack returns what is in an archive. Nothing in one may have an owner but root, or a
// date.
func unpack(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	found := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d and is of %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		found[header.Name] = entry{header.Typeflag, header.Mode, header.Linkname, string(content)}
	}
}

func TestWriteRootfs(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, RootfsFile)
	if err := os.WriteFile(out, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteRootfs(dir, []byte("a program"), []string{"sh", "ls", "sleep"}); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	directory := entry{Type: tar.TypeDir, Mode: 0o755}
	link := entry{Type: tar.TypeSymlink, Mode: 0o777, Link: "busybox"}
	want := map[string]entry{
		"bin/": directory, "etc/": directory, "root/": directory, "run/": directory, "var/": directory, "var/log/": directory,
		"tmp/":        {Type: tar.TypeDir, Mode: 0o1777},
		"bin/busybox": {Type: tar.TypeReg, Mode: 0o755, Content: "a program"},
		"bin/ls":      link, "bin/sh": link, "bin/sleep": link,
	}
	for _, file := range rootfsFiles {
		want[file.name] = entry{Type: tar.TypeReg, Mode: 0o644, Content: file.content}
	}
	if diff := cmp.Diff(want, unpack(t, archive)); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(out + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file is left: %v", err)
	}
	again, err := packRootfs([]byte("a program"), []string{"sleep", "sh", "ls"})
	if err != nil || !bytes.Equal(archive, again) {
		t.Errorf("the same commands in another order give another archive, %v", err)
	}
	if err := WriteRootfs(filepath.Join(dir, "none"), nil, nil); err == nil {
		t.Error("a missing directory is no error")
	}
}
