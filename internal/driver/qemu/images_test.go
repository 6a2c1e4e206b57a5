package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"errors"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// server serves one image, and can break a response off.
type server struct {
	*httptest.Server
	content []byte

	mu       sync.Mutex
	requests []string // the requested ranges
	breakAt  int      // the number of bytes after which the next response breaks off; 0 means never
}

func newServer(t *testing.T, size int) *server {
	t.Helper()
	s := &server{content: make([]byte, size)}
	for i := range s.content {
		s.content[i] = byte(i * 7 >> 4)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		at := s.breakAt
		s.breakAt = 0
		s.requests = append(s.requests, r.Header.Get("Range"))
		s.mu.Unlock()
		if at > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(s.content)))
			_, _ = w.Write(s.content[:at])
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "image", time.Time{}, strings.NewReader(string(s.content)))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) digest() string {
	sum := sha256.Sum256(s.content)
	return hex.EncodeToString(sum[:])
}

func TestDownload(t *testing.T) {
	quiet := func(string) {}
	t.Run("it reports progress and downloads once", func(t *testing.T) {
		s := newServer(t, 8<<20)
		i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
		var reported []string
		path, err := i.get(t.Context(), "default", s.URL, s.digest(), func(text string) { reported = append(reported, text) })
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(s.content) {
			t.Errorf("the file has %d bytes, %v", len(got), err)
		}
		want := []string{"the image is being downloaded"}
		for _, percent := range []int{25, 50, 75, 100} {
			want = append(want, fmt.Sprintf("the image is being downloaded, %d %% of 8 MiB", percent))
		}
		if diff := cmp.Diff(append(want, "the image is being verified"), reported); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := i.get(t.Context(), "default", s.URL, s.digest(), quiet); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(s.requests) != 1 {
			t.Errorf("it was downloaded %d times", len(s.requests))
		}
	})
	t.Run("it resumes, also in another process", func(t *testing.T) {
		s := newServer(t, 4<<20)
		s.breakAt = 1 << 20
		dir := t.TempDir()
		if _, err := newImages(dir, Options{ImageNetworks: loopback}).get(t.Context(), "default", s.URL, s.digest(), quiet); err == nil {
			t.Fatal("an interrupted download succeeded")
		}
		if _, err := os.Stat(filepath.Join(dir, s.digest())); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a partial image is visible: %v", err)
		}
		if _, err := newImages(dir, Options{ImageNetworks: loopback}).get(t.Context(), "default", s.URL, s.digest(), quiet); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"", "bytes=1048576-"}, s.requests); diff != "" {
			t.Errorf("ranges (-want +got):\n%s", diff)
		}
	})
	t.Run("another digest", func(t *testing.T) {
		s := newServer(t, 1<<20)
		dir := t.TempDir()
		_, err := newImages(dir, Options{ImageNetworks: loopback}).get(t.Context(), "default", s.URL, strings.Repeat("0", 64), quiet)
		if err == nil || !strings.Contains(err.Error(), s.digest()) {
			t.Errorf("get: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("a full disk, and then free space", func(t *testing.T) {
		s := newServer(t, 1<<20)
		dir := t.TempDir()
		part := filepath.Join(dir, source{s.URL, s.digest()}.part())
		if err := os.Symlink("/dev/full", part); err != nil { // writes fail with ENOSPC
			t.Fatal(err)
		}
		if _, err := newImages(dir, Options{ImageNetworks: loopback}).get(t.Context(), "default", s.URL, s.digest(), quiet); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("get: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, s.digest())); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a partial image is visible: %v", err)
		}
		if err := os.Remove(part); err != nil {
			t.Fatal(err)
		}
		if _, err := newImages(dir, Options{ImageNetworks: loopback}).get(t.Context(), "default", s.URL, s.digest(), quiet); err != nil {
			t.Error(err)
		}
	})
}

// A machine with an image by address, in qcow2, with a disk larger than the image.
func TestMachineOfADownloadedImage(t *testing.T) {
	w := newFixture(t)
	source := filepath.Join(t.TempDir(), "image.qcow2")
	w.makeImage("-f", "qcow2", source, "4M")
	s := newServer(t, 0)
	var err error
	s.content, err = os.ReadFile(source)
	w.do(err)
	machine := w.firmware()
	machine.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: s.URL, Sha256: s.digest()}}
	machine.DiskBytes = 8 << 20
	w.run(machine)
	info, err := inspect(t.Context(), w.driver.imageTool, w.driver.machines[uid].user(), filepath.Join(w.driver.machinesDir(), string(uid), diskFile), "qcow2")
	w.do(err)
	if info.VirtualSize != 8<<20 || info.Backing != filepath.Join(w.driver.imagesDir(), s.digest()) {
		t.Errorf("the disk: %+v", info)
	}
	w.remove()
}

func TestRejectedImages(t *testing.T) {
	w := newFixture(t)
	dir := t.TempDir()
	base, overlay := emptyImage(t), filepath.Join(dir, "overlay.qcow2")
	w.makeImage("-f", "qcow2", "-b", base, "-F", "raw", overlay)
	// Opening the pipe would block.
	pipe, external := filepath.Join(dir, "pipe"), filepath.Join(dir, "external.qcow2")
	w.makeImage("-f", "qcow2", "-o", "data_file="+pipe, external, "1M")
	w.do(os.Remove(pipe))
	w.do(syscall.Mkfifo(pipe, 0o600))
	descriptor := filepath.Join(dir, "descriptor")
	w.do(os.WriteFile(descriptor, fmt.Appendf(nil, "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n"+
		"RW 2048 FLAT %q 0\n", pipe), 0o600))
	for name, test := range map[string]struct {
		image *v1alpha1.Image
		disk  int64
		says  string
	}{
		"with external data":           {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: external}}, 0, "another file"},
		"with external data, declared": {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: external, Format: "qcow2"}}, 0, "another file"},
		"that only names other files":  {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: descriptor}}, 0, "its format is vmdk: it must be qcow2 or raw"},
		"with a backing file":          {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: overlay}}, 0, "another file"},
		"missing":                      {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: filepath.Join(dir, "none")}}, 0, "no such file"},
		"larger than the disk":         {&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: base}}, 1 << 19, "make it larger"},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			machine := firmware(uid)
			machine.Image, machine.DiskBytes = test.image, test.disk
			w.do(w.driver.Create(t.Context(), machine))
			server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil && s.Task == backend.TaskNone })
			if server.State != backend.StateAbsent || !strings.Contains(server.Ended.Message, test.says) {
				t.Errorf("state %s, failed with %q", server.State, server.Ended.Message)
			}
			w.remove()
		})
	}
}

func TestDiskPolicyRetain(t *testing.T) {
	for name, definition := range map[string]string{"as usual": "", "with an unreadable definition": "{", "with another machine's definition": `{"UID":"x"}`} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := w.firmware()
			w.run(machine)
			if definition != "" {
				w.do(w.driver.Close())
				w.do(os.WriteFile(filepath.Join(w.driver.machinesDir(), string(uid), definitionFile), []byte(definition), 0o600))
				w.open()
			}
			w.deleteKeepingDisk(machine.Identity)
			if left, _ := filepath.Glob(filepath.Join(w.driver.retainedDir(), "default", "vm", "*.qcow2")); len(left) != 1 {
				t.Errorf("retained disks: %v", left)
			}
			w.remove()
		})
	}
}
