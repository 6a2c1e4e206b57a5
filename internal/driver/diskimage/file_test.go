package diskimage

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Files that are no disks are refused with what they are.
func TestExamineOtherFiles(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 4096)) // to memory
	_ = w.Close()
	packed.Write(make([]byte, 512-packed.Len()%512))
	archive := make([]byte, 1024)
	copy(archive[257:], "ustar")
	sector := append([]byte("\xeb\x63\x90"), make([]byte, 509)...)
	text := []byte(strings.Repeat("<p>Not found</p>", 64))
	for _, test := range []struct {
		name     string
		content  []byte
		declared string
		says     string
	}{
		{"empty", nil, "", "it is empty"},
		{"empty, declared", nil, Raw, "it is empty"},
		{"gzip", packed.Bytes(), "", "packed with gzip"},
		{"tar", archive, "", "packed with tar"},
		{"300 bytes", make([]byte, 300), "", "its size of 300 bytes"},
		{"text", text, "", "it is text"},
		{"a disk", sector, "", ""},
		{"a disk of zeros", make([]byte, 1024), "", ""},
		{"text, declared", text, Raw, ""},
		{"gzip, declared", packed.Bytes(), Raw, ""},
		{"300 bytes, declared", make([]byte, 300), Raw, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			format, err := Examine(path, test.declared)
			switch {
			case test.says == "" && (err != nil || format != Raw):
				t.Errorf("got %q, %v", format, err)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
				t.Errorf("got %q, %v, want %q", format, err, test.says)
			}
		})
	}
}

// Files in the format qcow2 are accepted whole, and refused when their end is missing.
func TestExamineQcow2(t *testing.T) {
	tool, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skipf("SKIP: %v", err)
	}
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	content := make([]byte, 2<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	clear(content[512<<10 : 1<<20]) // clusters without data
	if err := os.WriteFile(raw, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"usual":             {},
		"small clusters":    {"-o", "cluster_size=512"},
		"large clusters":    {"-o", "cluster_size=2M"},
		"version 2":         {"-o", "compat=0.10"},
		"extended tables":   {"-o", "extended_l2=on"},
		"compressed inside": {"-c"},
		"with more space":   {"-o", "preallocation=metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "qcow2")
			convert := append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), raw, path)
			if out, err := exec.Command(tool, convert...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if format, err := Examine(path, ""); err != nil || format != Qcow2 {
				t.Errorf("whole: %q, %v", format, err)
			}
			for _, size := range []int64{info.Size() / 2, 100 << 10, 1000, 8} {
				if err := os.Truncate(path, min(size, info.Size()/2)); err != nil {
					t.Fatal(err)
				}
				for _, declared := range []string{"", Qcow2} {
					if _, err := Examine(path, declared); err == nil {
						t.Errorf("%d of %d bytes are accepted", size, info.Size())
					}
				}
			}
		})
	}
	t.Run("without data", func(t *testing.T) {
		path := filepath.Join(dir, "empty")
		if out, err := exec.Command(tool, "create", "-f", "qcow2", path, "1G").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if format, err := Examine(path, ""); err != nil || format != Qcow2 {
			t.Errorf("got %q, %v", format, err)
		}
	})
}
