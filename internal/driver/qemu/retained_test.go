package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestRetainedDisks(t *testing.T) {
	if disks, err := RetainedDisks(t.TempDir()); err != nil || len(disks) > 0 {
		t.Errorf("of nothing: %v, %v", disks, err)
	}
	state := t.TempDir()
	const id = "6b1a3c5e-0000-4000-8000-000000000000.qcow2"
	root := retainedDir(state)
	for _, name := range []string{"default/web/" + id, "notes"} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, 100)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := RetainedDisks(state)
	if err != nil {
		t.Fatal(err)
	}
	disk := func(namespace, name, path string) backend.RetainedDisk {
		return backend.RetainedDisk{Namespace: namespace, Name: name, Path: filepath.Join(root, path), VirtualBytes: 100}
	}
	want := []backend.RetainedDisk{
		disk("default", "web", "default/web/"+id), disk("", "", "notes"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Disks are retained even with the longest names that Kubernetes allows.
func TestRetainedDiskWithALongName(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	machine.Namespace, machine.Name = strings.Repeat("n", 63), strings.Repeat("m", 253)
	w.create(machine)
	w.deleteKeepingDisk(machine.Identity)
	disks, err := w.driver.Retained(t.Context())
	w.do(err)
	if len(disks) != 1 || disks[0].Namespace != machine.Namespace || disks[0].Name != machine.Name || disks[0].VirtualBytes != machine.DiskBytes || disks[0].AllocatedBytes == 0 {
		t.Errorf("retained disks: %+v", disks)
	}
}

// The size in an image is accepted without limit only if the user has requested that size.
func TestDefaultDiskSizeIsLimited(t *testing.T) {
	w := newFixture(t)
	w.options.MaxRootDiskBytes = 1 << 30
	w.open()
	image := filepath.Join(t.TempDir(), "image.qcow2")
	for _, test := range []struct {
		name string
		size string
		disk int64
		says string
	}{
		{"just small enough", "1G", 0, ""},
		{"too large", "1025M", 0, "virtualMachines.maxRootDisk allows 1073741824 for a disk without spec.resource.rootDisk: set spec.resource.rootDisk to 1074790400 or more"},
		{"as large as requested", "1025M", 1025 << 20, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.T = t
			w.makeImage("-f", "qcow2", image, test.size)
			machine := firmware(uid)
			machine.Image, machine.DiskBytes = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: image}}, test.disk
			w.do(w.driver.Create(t.Context(), machine))
			server := w.eventually("it is created, or has failed", func(s *backend.Server) bool {
				return s.Task == backend.TaskNone && (s.State == backend.StateStopped || s.Ended != nil)
			})
			switch {
			case test.says == "" && server.State != backend.StateStopped:
				t.Errorf("it failed: %+v", server.Ended)
			case test.says != "" && (server.Ended == nil || !strings.Contains(server.Ended.Message, test.says)):
				t.Errorf("ended with %+v", server.Ended)
			}
			w.remove()
		})
	}
}
