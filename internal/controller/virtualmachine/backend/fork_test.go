package backend

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

func TestDisksDifferFrom(t *testing.T) {
	data := Disk{Name: "data", SizeBytes: 2}
	for name, test := range map[string]struct {
		root  int64
		disks []Disk
		says  string
	}{
		"the same":            {1, []Disk{data}, ""},
		"the default sizes":   {0, []Disk{{Name: "data"}}, ""},
		"a larger root disk":  {2, []Disk{data}, "its root disk"},
		"a larger disk":       {1, []Disk{{Name: "data", SizeBytes: 3}}, "its disk data"},
		"another disk":        {1, []Disk{data, {Name: "other", SizeBytes: 2}}, "its disk other"},
		"a disk of an image":  {1, []Disk{{Name: "data", SizeBytes: 2, Image: &v1alpha1.Image{}}}, "its disk data"},
		"a VirtualDisk":       {1, []Disk{{Name: "data", VirtualDisk: "own"}}, "its disk data"},
		"without one of them": {1, nil, "does not have the disk data"},
	} {
		machine := Machine{DiskBytes: test.root, Disks: test.disks}
		if got := machine.DisksDifferFrom(map[string]int64{v1alpha1.RootDiskName: 1, "data": 2}); !strings.Contains(got, test.says) || (got == "") != (test.says == "") {
			t.Errorf("%s: %q, want %q", name, got, test.says)
		}
	}
	if got := (&Machine{DiskBytes: 1}).DisksDifferFrom(nil); got == "" {
		t.Error("a root disk that the snapshot does not have is the same")
	}
}
