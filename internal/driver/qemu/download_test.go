package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

const anyDigest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

// trickle is a server that sends a byte every few milliseconds, endlessly. It counts the requests.
func trickle(t *testing.T) (address string, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(w, "x"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// began returns a progress function, and a function that waits for a progress text.
func began(t *testing.T, want string) (progress func(string), wait func()) {
	reported, once := make(chan struct{}), sync.Once{}
	return func(text string) {
			if strings.Contains(text, want) {
				once.Do(func() { close(reported) })
			}
		}, func() {
			t.Helper()
			select {
			case <-reported:
			case <-time.After(harness.WaitTimeout):
				t.Fatalf("progress %q was never reported", want)
			}
		}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// A user who names a public digest and their own slow server delays nobody, and gets the image when
// it arrives for others.
func TestSlowServersDelayNobodyElse(t *testing.T) {
	slow, _ := trickle(t)
	good := newServer(t, 1<<20)
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
	progress, wait := began(t, "is being downloaded")
	first := make(chan error, 1)
	go func() {
		_, err := i.get(t.Context(), "hostile", slow, good.digest(), progress)
		first <- err
	}()
	wait()
	if _, err := i.get(t.Context(), "default", good.URL, good.digest(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Errorf("the image has arrived, but the caller of the slow server got %v", err)
	}
	if diff := cmp.Diff([]string{good.digest()}, names(t, i.dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A partial download is never resumed from another server.
func TestPartsBelongToTheirSource(t *testing.T) {
	garbage, good := newServer(t, 1<<20), newServer(t, 1<<20)
	garbage.content[0]++
	garbage.breakAt = 1 << 19
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
	if _, err := i.get(t.Context(), "hostile", garbage.URL, good.digest(), func(string) {}); err == nil {
		t.Fatal("an interrupted download succeeded")
	}
	if _, err := i.get(t.Context(), "default", good.URL, good.digest(), func(string) {}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{""}, good.requests); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
}

func TestADownloadHasADeadline(t *testing.T) {
	slow, requests := trickle(t)
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback, ImageTimeout: 200 * time.Millisecond})
	_, err := i.get(t.Context(), "default", slow, anyDigest, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "virtualMachines.imageTimeout") {
		t.Errorf("got %v", err)
	}
	if info, err := os.Stat(filepath.Join(i.dir, source{slow, anyDigest}.part())); err != nil || info.Size() == 0 {
		t.Errorf("partial download: %v, %v", info, err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Callers with the same source share one download and its result.
func TestADownloadIsShared(t *testing.T) {
	const others = 4
	var requests atomic.Int32
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		<-release
		http.Error(w, "none", http.StatusNotFound)
	}))
	defer s.Close()
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
	errs := make(chan error, others+1)
	get := func(progress func(string)) {
		_, err := i.get(t.Context(), "default", s.URL, anyDigest, progress)
		errs <- err
	}
	for n := range others + 1 {
		want := "for another machine"
		if n == 0 {
			want = "is being downloaded"
		}
		progress, wait := began(t, want)
		go get(progress)
		wait()
	}
	close(release)
	for range others + 1 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("got %v", err)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Deleting a machine ends its download only for itself.
func TestCancelledCallerOfASharedDownload(t *testing.T) {
	good := newServer(t, 1<<20)
	var first sync.Once
	begun := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waits := false
		first.Do(func() { waits = true })
		if waits {
			close(begun)
			<-r.Context().Done()
			return
		}
		good.Config.Handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() {
		_, err := i.get(ctx, "a", s.URL, good.digest(), func(string) {})
		ended <- err
	}()
	<-begun
	progress, wait := began(t, "for another machine")
	go func() {
		_, err := i.get(t.Context(), "b", s.URL, good.digest(), progress)
		ended <- err
	}()
	wait()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the other caller got %v", err)
	}
}

// A namespace whose slow servers use up its limit gets no more downloads, and delays no other
// namespace.
func TestDownloadsOfANamespaceAreBounded(t *testing.T) {
	slow, _ := trickle(t)
	good := newServer(t, 1<<20)
	i := newImages(t.TempDir(), Options{ImageNetworks: loopback})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	begin := func(namespace, path, tells string) {
		t.Helper()
		progress, wait := began(t, tells)
		all.Go(func() {
			if _, err := i.get(ctx, namespace, slow+path, anyDigest, progress); !errors.Is(err, context.Canceled) {
				t.Errorf("%s%s: %v", namespace, path, err)
			}
		})
		wait()
	}
	for n := range maxDownloadsOfNamespace {
		begin("hostile", fmt.Sprint("/", n), "is being downloaded")
	}
	begin("hostile", "/more", "is waiting for others")
	if _, err := i.get(t.Context(), "default", good.URL, good.digest(), func(string) {}); err != nil {
		t.Error(err)
	}
	for n := range maxDownloads - maxDownloadsOfNamespace {
		begin(fmt.Sprint("other-", n/maxDownloadsOfNamespace), fmt.Sprint("/other-", n), "is being downloaded")
	}
	begin("one-too-many", "/", "is waiting for others")
	cancel()
	all.Wait()
}

// makePart creates a partial download with a size and a modification time in minutes.
func makePart(t *testing.T, dir, name string, size int64, minute int) {
	t.Helper()
	path := filepath.Join(dir, name)
	at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

func TestPartsAreBounded(t *testing.T) {
	const limit = 1 << 20
	busy := source{"http://a", anyDigest}
	tests := []struct {
		name  string
		parts map[string]int64 // in the order of their names
		want  []string
		fails bool
	}{
		{"few and small", map[string]int64{"1.part": limit, "2.part": limit}, []string{"1.part", "2.part"}, false},
		{"too large", map[string]int64{"1.part": 2 * limit, "2.part": limit, "3.part": 2 * limit}, []string{"2.part", "3.part"}, false},
		{"too large with the active one", map[string]int64{busy.part(): 3 * limit, "3.part": limit, "4.part": limit}, []string{busy.part(), "4.part"}, false},
		{"the active one is too large", map[string]int64{busy.part(): 5 * limit, "3.part": limit}, []string{busy.part()}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := newImages(t.TempDir(), Options{MaxImageBytes: limit})
			i.downloads[busy] = &download{}
			sorted := []string{}
			for name := range tt.parts {
				sorted = append(sorted, name)
			}
			slices.Sort(sorted)
			for n, name := range sorted {
				makePart(t, i.dir, name, tt.parts[name], n)
			}
			if err := i.makeRoom(); (err != nil) != tt.fails {
				t.Error(err)
			}
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, names(t, i.dir)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		i := newImages(t.TempDir(), Options{})
		var want []string
		for n := range maxParts + 3 {
			name := fmt.Sprintf("%03d.part", n)
			makePart(t, i.dir, name, 1, n)
			if n >= 3 {
				want = append(want, name)
			}
		}
		if err := i.makeRoom(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, names(t, i.dir)); diff != "" {
			t.Errorf("parts (-want +got):\n%s", diff)
		}
	})
	t.Run("an active download counts while it grows", func(t *testing.T) {
		const size = 2 * diskimage.CheckInterval
		s := newServer(t, size)
		i := newImages(t.TempDir(), Options{ImageNetworks: loopback, MaxImageBytes: size})
		i.downloads[busy] = &download{}
		makePart(t, i.dir, busy.part(), partsSize*size-diskimage.CheckInterval/2, 0)
		_, err := i.get(t.Context(), "default", s.URL, s.digest(), func(string) {})
		if err == nil || !strings.Contains(err.Error(), "retrying") {
			t.Errorf("got %v", err)
		}
	})
}
