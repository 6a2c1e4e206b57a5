package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCollectPrograms(t *testing.T) {
	root := t.TempDir()
	static := elfFile(nil, ".text", []byte("code"))
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/busybox"), static, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := CollectPrograms(root, "busybox")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"bin/busybox": static}, got); diff != "" {
		t.Errorf("a static program (-want +got):\n%s", diff)
	}
	if _, err := CollectPrograms(root, "mke2fs"); err == nil || !strings.Contains(err.Error(), "busybox-static and e2fsprogs") {
		t.Errorf("a missing program: %v", err)
	}
}

// The programs of this machine come with their libraries and the loader.
func TestCollectDynamicPrograms(t *testing.T) {
	got, err := CollectPrograms("/", "mke2fs")
	if err != nil {
		t.Skipf("e2fsprogs is not installed: %v", err)
	}
	for _, file := range []string{"bin/mke2fs", "lib/" + loader, "lib/libc.so.6", "lib/libext2fs.so.2"} {
		if len(got[file]) == 0 {
			t.Errorf("%s is missing", file)
		}
	}
}
