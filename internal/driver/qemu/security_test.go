package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// QEMU accepts any argument of -append verbatim.
func TestQEMUTakesACommandLineLikeAFlag(t *testing.T) {
	w := newFixture(t)
	kernel := filepath.Join(t.TempDir(), "kernel")
	w.do(os.WriteFile(kernel, []byte("none"), 0o600))
	machine := firmware(uid)
	machine.Image = &v1alpha1.Image{Kernel: kernel, Cmdline: "-version"}
	w.do(w.driver.Create(t.Context(), machine))
	w.eventually("it is created", func(s *backend.Server) bool { return s.State == backend.StateStopped })
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil })
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
	w.do(w.driver.Create(t.Context(), machine))
	w.eventually("it is created", func(s *backend.Server) bool { return s.State == backend.StateStopped })
	w.options.ImageDirs = confine.Dirs{t.TempDir()}
	w.open()
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil && s.Task == backend.TaskNone })
	if !strings.Contains(server.Ended.Message, "virtualMachines.imageDirs") {
		t.Errorf("ended with %q", server.Ended.Message)
	}
	w.remove()
}

// elsewhere is a server on a loopback address that is not allowed. It counts its requests.
func elsewhere(t *testing.T) (address string, visits *atomic.Int32) {
	t.Helper()
	visits = &atomic.Int32{}
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		fmt.Fprint(w, "secret")
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().String(), visits
}

func TestDownloadsReachThePublicInternetOnly(t *testing.T) {
	address, visits := elsewhere(t)
	digest := hex.EncodeToString(sha256.New().Sum(nil))
	redirect := httptest.NewServer(http.RedirectHandler("http://"+address+"/latest/meta-data", http.StatusFound))
	defer redirect.Close()
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }))
	defer loop.Close()
	file := httptest.NewServer(http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	defer file.Close()
	_, port, _ := net.SplitHostPort(address)
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	tests := []struct {
		name, url, want string
		allowed         []netip.Prefix
	}{
		{"loopback", "http://" + address, "not downloaded from there", nil},
		{"loopback by name", "http://localhost:" + port, "not downloaded from there", nil},
		{"loopback as one number", "http://2130706434:" + port, "", nil},
		{"loopback as IPv6", "http://[::ffff:127.0.0.2]:" + port, "not downloaded from there", nil},
		{"metadata of a cloud", "http://169.254.169.254/latest/meta-data", "169.254.169.254 is neither on the public Internet", nil},
		{"the private network", "https://10.0.0.1/image", "10.0.0.1 is neither on the public Internet", nil},
		{"redirected to loopback", redirect.URL, "127.0.0.2 is neither on the public Internet", here},
		{"redirect loop", loop.URL, "more than 5 redirects", here},
		{"redirected to a file", file.URL, "file", here},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := newImages(t.TempDir(), Options{ImageNetworks: tt.allowed})
			_, err := i.get(t.Context(), "default", tt.url, digest, func(string) {})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("the forbidden server got %d requests", n)
	}
}

// A name that first resolves to an allowed address and then to another one is checked at each
// connection.
func TestDNSRebinding(t *testing.T) {
	address, visits := elsewhere(t)
	_, port, _ := net.SplitHostPort(address)
	var asked atomic.Int32
	answers := func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.3") // allowed, but nothing listens there
		}
		return netip.MustParseAddr("127.0.0.2")
	}
	lookup = newResolver(t, answers)
	defer func() { lookup = nil }()
	i := newImages(t.TempDir(), Options{ImageNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}})
	for _, want := range []string{"connection refused", "127.0.0.2 is neither on the public Internet"} {
		_, err := i.get(t.Context(), "default", "http://rebind.example:"+port, strings.Repeat("0", 64), func(string) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("the forbidden server got %d requests", n)
	}
}

// newResolver returns a resolver with a name server of this test, which resolves every name to an
// IPv4 address.
func newResolver(t *testing.T, answer func() netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // ends the loop
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if message.Unpack(buffer[:n]) != nil || len(message.Questions) != 1 {
				continue
			}
			message.Response = true
			message.Additionals = nil
			if question := message.Questions[0]; question.Type == dnsmessage.TypeA {
				message.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
					Body:   &dnsmessage.AResource{A: answer().As4()},
				}}
			}
			if packed, err := message.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from) // the client may have gone
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func TestProxyAddresses(t *testing.T) {
	environment := map[string]string{"http_proxy": "http://user:password@proxy.example:3128", "HTTPS_PROXY": "https://secure.example"}
	got := proxyAddresses(func(name string) string { return environment[name] })
	if diff := cmp.Diff([]string{"proxy.example:3128", "secure.example:443"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
