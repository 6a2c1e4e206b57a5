package controlplane_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// The process of a record that cannot be read still runs. It is ended with the others, and the log names the record.
func TestDestroyWithADamagedRecord(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcd", "kube-apiserver", "node"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			if err := start(t, controlplane.Options{Dir: dir, Binary: standInBinary(t), APIOnly: true}).Detach(); err != nil {
				t.Fatal(err)
			}
			folder := filepath.Join(dir, "processes", name)
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "record.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			var logged strings.Builder
			log := funcr.New(func(_, args string) { logged.WriteString(args + "\n") }, funcr.Options{})
			if err := controlplane.Destroy(t.Context(), dir, log); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the data directory is still there: %v", err)
			}
			if controlplane.Remains(dir) {
				t.Error("something of the control plane remains")
			}
			if !strings.Contains(logged.String(), folder) {
				t.Errorf("the log does not name the record %s: %s", folder, &logged)
			}
		})
	}
}
