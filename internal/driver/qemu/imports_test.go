package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func imageID(name string) backend.ImageIdentity {
	return backend.ImageIdentity{UID: types.UID("uid-of-" + name), Name: name}
}

// imported imports an image, waits until that has ended, and returns the state.
func (w *fixture) imported(id backend.ImageIdentity, source v1alpha1.VirtualMachineImageSpec) backend.ImageState {
	w.Helper()
	w.do(w.driver.ImportImage(w.Context(), id, source))
	var state backend.ImageState
	harness.Eventually(w, "the import has ended", func() bool {
		var err error
		state, err = w.driver.ObserveImage(w.Context(), id)
		return err == nil && (state.Ready || state.Failure != nil)
	})
	return state
}

func TestImportedImageIsKeptAndShared(t *testing.T) {
	w, s, machine := newImageFixture(t)
	id, source := imageID("it"), v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{URL: s.URL, Sha256: s.digest()}}
	file := filepath.Join(w.driver.imagesDir(), s.digest())
	isThere := func() bool { _, err := os.Stat(file); return err == nil }
	notified := make(chan string, 100)
	w.driver.WatchImages(func(name string) { notified <- name })

	if _, err := w.driver.ObserveImage(t.Context(), id); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("before the import: %v", err)
	}
	state := w.imported(id, source)
	if !state.Ready || state.Format != diskimage.Raw || state.VirtualBytes != 1<<20 || state.AllocatedBytes < 1<<20 {
		t.Errorf("state: %+v", state)
	}
	if name := <-notified; name != "it" {
		t.Errorf("notified: %s", name)
	}

	// Nobody uses it, and it is not collected. A new manager finds it, without a download.
	w.collect(2 * week)
	w.collect(4 * week)
	w.open()
	if state := w.imported(id, source); !state.Ready || len(s.requests) != 1 {
		t.Errorf("after a restart: %+v, %d downloads", state, len(s.requests))
	}

	// A machine that names it needs no download, and keeps the file when the object is gone.
	machine.Image = backend.NewImage("it", source)
	machine.Image.Agent = new(bool)
	w.run(machine)
	w.do(w.driver.ReleaseImage(t.Context(), id))
	if !isThere() || len(s.requests) != 1 {
		t.Errorf("the file is there: %t, %d downloads", isThere(), len(s.requests))
	}
	// The controller knows only the name after that.
	machine.Image = &v1alpha1.Image{Name: "it"}
	machine.Hash = "2"
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.expectBases()
	w.remove()
	w.imported(id, source)
	w.do(w.driver.ReleaseImage(t.Context(), id))
	if isThere() {
		t.Error("nobody uses the image, but its file is left")
	}
	w.do(w.driver.ReleaseImage(t.Context(), id))
}

func TestImportFails(t *testing.T) {
	w, s, _ := newImageFixture(t)
	dir := t.TempDir()
	w.options.ImageDirs = confine.Dirs{dir}
	w.open()
	overlay := filepath.Join(dir, "overlay.qcow2")
	w.makeImage("-f", "qcow2", "-b", emptyImage(t), "-F", "raw", overlay)
	for _, test := range []struct {
		name   string
		source v1alpha1.VirtualMachineImageSpec
		want   string
	}{
		{"another digest", v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{URL: s.URL, Sha256: strings.Repeat("0", 64)}}, "its digest is"},
		{"a missing file", v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: filepath.Join(dir, "missing")}}, "no such file"},
		{"an image that names another file", v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: overlay}}, "another file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := w.imported(imageID(test.name), test.source)
			if state.Ready || state.Failure == nil || state.FailedAt.IsZero() || !strings.Contains(state.Failure.Error(), test.want) {
				t.Errorf("state: %+v", state)
			}
		})
	}
	err := w.driver.ImportImage(t.Context(), imageID("outside"), v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: "/etc/passwd"}})
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "spec.path of the VirtualMachineImage outside") {
		t.Errorf("a file outside of virtualMachines.imageDirs: %v", err)
	}
}
