package qemu

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/egress"
)

// QEMU accepts any argument of -append verbatim.
func TestQEMUTakesACommandLineLikeAFlag(t *testing.T) {
	w := newFixture(t)
	kernel := filepath.Join(t.TempDir(), "kernel")
	w.do(os.WriteFile(kernel, []byte("none"), 0o600))
	machine := firmware(uid)
	machine.Image = &v1alpha1.Image{Kernel: kernel, Cmdline: "-version"}
	w.create(machine)
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil && s.Task == backend.TaskNone })
	if !strings.Contains(server.Ended.Message, "kernel") { // and not QEMU's version
		t.Errorf("ended with %q", server.Ended.Message)
	}
	w.remove()
}

// Paths that are invalid in themselves are rejected before they are stored.
func TestRule(t *testing.T) {
	rule := NewRule(confine.Dirs{"/images"})
	const outside = "it is in none of the directories that users may name files in; virtualMachines.imageDirs allows: /images"
	for _, test := range []struct {
		name  string
		image *v1alpha1.Image
		want  error
	}{
		{"no image", nil, nil},
		{"files in the directory", &v1alpha1.Image{Kernel: "/images/k", Initrd: "/images/a/i"}, nil},
		{"an address", &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: "https://example.com/disk"}}, nil},
		{"a disk elsewhere", &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/dev/sda"}}, &backend.FieldError{Field: "spec.image.path", Message: outside}},
		{"a kernel elsewhere", &v1alpha1.Image{Kernel: "/images/../k"}, &backend.FieldError{Field: "spec.image.kernel", Message: outside}},
		{"initrd elsewhere", &v1alpha1.Image{Kernel: "/images/k", Initrd: "/i"}, &backend.FieldError{Field: "spec.image.initrd", Message: outside}},
		{"a control character", &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/images/\x01"}},
			&backend.FieldError{Field: "spec.image.path", Message: "it must be an absolute path without control characters"}},
		{"unsupported by the driver", &v1alpha1.Image{Container: "debian"},
			&backend.FieldError{Field: "spec.image.container", Message: "the driver qemu does not run containers; specify a disk image or a kernel"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := firmware(uid)
			machine.Image = test.image
			if diff := cmp.Diff(test.want, rule(&machine)); diff != "" {
				t.Errorf("rejection (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilesOfImagesAreConfined(t *testing.T) {
	w := newFixture(t)
	allowed, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	w.do(os.WriteFile(secret, []byte("hunter2"), 0o600))
	w.do(os.Symlink(secret, filepath.Join(allowed, "link")))
	w.do(os.WriteFile(filepath.Join(allowed, "kernel"), []byte("none"), 0o600))
	w.options.ImageDirs = confine.Dirs{allowed}
	w.open()
	for name, image := range map[string]*v1alpha1.Image{
		"a disk elsewhere":       {ImageSource: v1alpha1.ImageSource{Path: secret}},
		"missing disk":           {ImageSource: v1alpha1.ImageSource{Path: "/nowhere"}},
		"escape by dots":         {ImageSource: v1alpha1.ImageSource{Path: allowed + "/../" + filepath.Base(filepath.Dir(secret)) + "/secret"}},
		"escape by a link":       {ImageSource: v1alpha1.ImageSource{Path: filepath.Join(allowed, "link")}},
		"a device":               {ImageSource: v1alpha1.ImageSource{Path: "/dev/sda"}},
		"a kernel elsewhere":     {Kernel: secret},
		"initrd elsewhere":       {Kernel: filepath.Join(allowed, "kernel"), Initrd: secret},
		"an address as the path": {ImageSource: v1alpha1.ImageSource{Path: "nbd://127.0.0.1/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine := firmware(uid)
			machine.Image = image
			err := w.driver.Create(t.Context(), machine)
			if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "spec.image.") {
				t.Errorf("Create: %v", err)
			}
			if _, err := w.driver.Observe(t.Context(), machine.Identity); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("something was created: %v", err)
			}
		})
	}
}

// A later restriction of the directories applies at the next start of a machine.
func TestAKernelIsConfinedAtEachStart(t *testing.T) {
	w := newFixture(t)
	kernel := filepath.Join(t.TempDir(), "kernel")
	w.do(os.WriteFile(kernel, []byte("none"), 0o600))
	machine := firmware(uid)
	machine.Image = &v1alpha1.Image{Kernel: kernel}
	w.create(machine)
	w.options.ImageDirs = confine.Dirs{t.TempDir()}
	w.open()
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil && s.Task == backend.TaskNone })
	if !strings.Contains(server.Ended.Message, "virtualMachines.imageDirs") {
		t.Errorf("ended with %q", server.Ended.Message)
	}
	w.remove()
}

func TestDownloadsReachThePublicInternetOnly(t *testing.T) {
	s := newServer(t, 1)
	_, err := newImages(t.TempDir(), Options{}).get(t.Context(), "default", s.URL, s.digest(), func(string) {})
	if !errors.Is(err, egress.ErrAddress) || !strings.Contains(err.Error(), "virtualMachines.imageNetworks") {
		t.Errorf("got %v", err)
	}
}

func TestOversizedImages(t *testing.T) {
	const limit = 1 << 20
	content := strings.Repeat("x", limit+1)
	for name, handler := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content) },
		"unannounced": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush() // hides the length
			fmt.Fprint(w, content)
		},
		"compressed": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				w.Header().Set("Content-Encoding", "gzip")
			}
			fmt.Fprint(w, content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(handler)
			defer s.Close()
			dir := t.TempDir()
			_, err := newImages(dir, Options{ImageNetworks: loopback, MaxImageBytes: limit}).get(t.Context(), "default", s.URL, strings.Repeat("0", 64), func(string) {})
			if !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "virtualMachines.imageMaxSize") {
				t.Errorf("got %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("leftovers: %v, %v", left, err)
			}
		})
	}
	t.Run("just large enough", func(t *testing.T) {
		s := newServer(t, limit)
		if _, err := newImages(t.TempDir(), Options{ImageNetworks: loopback, MaxImageBytes: limit}).get(t.Context(), "default", s.URL, s.digest(), func(string) {}); err != nil {
			t.Error(err)
		}
	})
}

func TestAddressesAreReportedWithoutPasswords(t *testing.T) {
	_, err := newImages(t.TempDir(), Options{}).get(t.Context(), "default", "http://user:hunter2@127.0.0.1:1/", strings.Repeat("0", 64), func(string) {})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// A UID becomes the name of a folder and an argument of QEMU.
func TestInvalidUID(t *testing.T) {
	w := newFixture(t)
	for _, bad := range []string{"", "..", "../../etc", "a/b", "-version", "x,debug=on", strings.ToUpper(string(uid)), string(uid) + "\n"} {
		machine := firmware(uid)
		machine.UID = types.UID(bad)
		if err := w.driver.Create(t.Context(), machine); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(w.driver.machinesDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
