package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// imageServer serves an image. Its first response breaks off at half of it, once next is closed.
type imageServer struct {
	*httptest.Server
	content string
	next    chan struct{}
	ranges  []string
}

func newImageServer(t *testing.T, content string) *imageServer {
	t.Helper()
	s := &imageServer{content: content, next: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/image" {
			http.NotFound(w, r)
			return
		}
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		if len(s.ranges) > 1 {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = io.WriteString(w, content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.next:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// TestImageFromAddress runs a machine whose image is downloaded: the first run breaks off, the second one resumes.
func TestImageFromAddress(t *testing.T) {
	m := newMachine(t)
	s := newImageServer(t, strings.Repeat("an image ", 1<<20/9)+strings.Repeat("x", 512-(1<<20/9*9)%512))
	m.token()
	m.definition.ImageURL, m.definition.ImageSHA256, m.definition.ImageFormat = s.URL+"/image", digest(s.content), "raw"
	m.definition.DiskBytes, m.definition.NoAgent = 64<<20, true
	m.run()
	harness.Eventually(t, "the progress is half", func() bool { return strings.Contains(m.asks(GuestPath), "50 % of 1 MiB") })
	close(s.next)
	if ended := m.awaitEnd(); ended.Cause != CauseStartFailed || !strings.Contains(ended.Message, "import the image "+s.URL) {
		t.Errorf("the first run ended as %+v", ended)
	}
	m.run()
	m.awaitReady()
	if left := m.guest().Progress; left != "" {
		t.Errorf("it runs, and its progress is %q", left)
	}
	if len(s.ranges) != 2 || s.ranges[1] == "" {
		t.Errorf("requests for %q", s.ranges)
	}
	signals.Send(t, m.qemu(), syscall.SIGKILL) // there is no guest that could power off
	m.awaitEnd()
	root := filepath.Join(m.dirs.Disk, "root.qcow2")
	raw := root + ".raw"
	if out, err := exec.Command("qemu-img", "convert", "-f", "qcow2", "-O", "raw", root, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(raw)
	if err != nil || len(got) != 64<<20 || string(got[:len(s.content)]) != s.content {
		t.Errorf("the disk has %d bytes, %v", len(got), err)
	}
	if _, err := os.Stat(downloadOf(root)); err == nil {
		t.Error("the download is kept")
	}
}

func TestImportFails(t *testing.T) {
	backed := make([]byte, 512)
	copy(backed, "QFI\xfb\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x04")
	larger := make([]byte, 512)
	copy(larger, "QFI\xfb\x00\x00\x00\x03")
	larger[23], larger[28] = 16, 0x10 // clusters of 64 KiB, 256 MiB
	for name, test := range map[string]struct {
		content, path, digest, want string
		kept                        bool
	}{
		"there is none":            {"x", "/none", digest("x"), "404", true},
		"another digest":           {"x", "/image", digest("y"), "but sha256 is " + digest("y"), false},
		"larger than the disk":     {strings.Repeat("x", 10<<20), "/image", digest("x"), "set a larger spec.resource.rootDisk", false},
		"a disk that is larger":    {string(larger), "/image", digest(string(larger)), "it has 256 MiB, and the disk 8 MiB", false},
		"it names another file":    {string(backed), "/image", digest(string(backed)), "refers to another file", true},
		"the format is not stored": {"KDMV", "/image", digest("KDMV"), "must be qcow2 or raw", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := newImageServer(t, test.content)
			s.ranges = []string{""} // no response breaks off
			l := &launcher{dirs: m.dirs, definition: m.definition, ready: newReadiness(), messages: io.Discard}
			l.definition.ImageURL, l.definition.ImageSHA256, l.definition.DiskBytes = s.URL+test.path, test.digest, 8<<20
			err := l.makeDisks(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			root := filepath.Join(m.dirs.Disk, "root.qcow2")
			if _, err := os.Stat(root); err == nil {
				t.Error("there is a disk")
			}
			if _, err := os.Stat(downloadOf(root)); (err == nil) != test.kept {
				t.Errorf("kept=%t, but %v", test.kept, err)
			}
		})
	}
}

// A launcher that is killed while it imports an image leaves files that the next one goes on with: it downloads only what is missing.
func TestImportGoesOn(t *testing.T) {
	const content = "of an image"
	for name, test := range map[string]struct {
		left   map[string]string // by the suffix of the disk
		ranges []string
	}{
		"a part of the download": {map[string]string{".download": content[:4]}, []string{"bytes=4-"}},
		"the download":           {map[string]string{".download": content}, []string{"bytes=11-"}},
		"a part of the disk":     {map[string]string{".download": content, ".part": "half a disk"}, []string{"bytes=11-"}},
		"another image":          {map[string]string{".download": content + content}, []string{"bytes=22-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := newImageServer(t, content)
			s.ranges = []string{""} // no response breaks off
			root := filepath.Join(m.dirs.Disk, "root.qcow2")
			for suffix, content := range test.left {
				if err := os.WriteFile(root+suffix, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l := &launcher{dirs: m.dirs, definition: m.definition, ready: newReadiness(), messages: io.Discard}
			l.definition.ImageURL, l.definition.ImageSHA256, l.definition.ImageFormat, l.definition.DiskBytes = s.URL+"/image", digest(content), "raw", 8<<20
			err := l.makeDisks(t.Context())
			if err != nil { // another image is removed, and downloaded by the next attempt
				err = l.makeDisks(t.Context())
			}
			if size, sizeErr := virtualSize(root); err != nil || sizeErr != nil || size != 8<<20 {
				t.Errorf("the disk has %d bytes: %v, %v", size, err, sizeErr)
			}
			if got := s.ranges[1:]; !slices.Equal(got, test.ranges) {
				t.Errorf("it asked for %q, want %q", got, test.ranges)
			}
			if left, err := filepath.Glob(root + ".*"); err != nil || len(left) > 0 {
				t.Errorf("%q is left, %v", left, err)
			}
		})
	}
}

// A volume that is full is told from other failures, also when qemu-img fails.
func TestIsFull(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, io.EOF: false, fmt.Errorf("write: %w", syscall.ENOSPC): true, syscall.EDQUOT: true,
		fmt.Errorf("qemu-img: exit status 1: error while writing: No space left on device"): true,
	} {
		if isFull(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}

// The report of a machine that has ended is one that kubelet keeps, however long the address of its image is.
func TestReportOfALongAddress(t *testing.T) {
	m := newMachine(t)
	m.definition.ImageURL, m.definition.DiskBytes = "http://127.0.0.1:1/"+strings.Repeat("a", 2000), 8<<20
	m.definition.ImageSHA256, m.definition.NoAgent = digest("x"), true
	m.run()
	ended := m.awaitEnd()
	raw, err := json.Marshal(ended)
	if err != nil || len(raw) > 4096 || ended.Cause != CauseStartFailed || !strings.Contains(ended.Message, "connection refused") {
		t.Errorf("the report has %d bytes: %s, %v", len(raw), raw, err)
	}
}
