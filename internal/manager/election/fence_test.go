package election

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/clocks"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

func TestFence(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	start := clocks.Reading(noon, 0)
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
	type write struct {
		after  time.Duration
		record resourcelock.LeaderElectionRecord
		err    error
	}
	tests := []struct {
		name   string
		writes []write
		at     time.Duration
		// suspended is how much further the wall clock is than the monotonic one.
		suspended time.Duration
		open      bool
	}{
		{name: "never the leader"},
		{name: "renewed just now", writes: []write{{record: ours}}, open: true},
		{name: "renewed long ago, and stopped since", writes: []write{{record: ours}}, at: 10 * time.Second},
		{name: "renewed just now, and the machine suspended since", writes: []write{{record: ours}}, suspended: 10 * time.Second},
		{name: "renewed long ago, and the wall clock set back since", writes: []write{{record: ours}}, at: 10 * time.Second, suspended: -time.Hour},
		{name: "renewed just now, and the wall clock set back since", writes: []write{{record: ours}}, at: time.Second, suspended: -time.Hour, open: true},
		{name: "renewed shortly before the deadline", writes: []write{{record: ours}, {after: 9 * time.Second, record: ours}}, at: 18 * time.Second, open: true},
		{name: "a renewal failed, the one before still counts", writes: []write{{record: ours}, {after: 2 * time.Second, record: ours, err: io.EOF}}, at: 9 * time.Second, open: true},
		{name: "a renewal that failed does not count", writes: []write{{record: ours}, {after: 8 * time.Second, record: ours, err: io.EOF}}, at: 12 * time.Second},
		{name: "released", writes: []write{{record: ours}, {}}},
		{name: "perhaps released: the answer was lost", writes: []write{{record: ours}, {err: io.EOF}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFence(Options{Identity: "us", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second})
			for _, w := range tt.writes {
				f.recordWrite(start.Add(w.after), w.record, w.err)
			}
			if got := f.isOpen(clocks.Reading(noon.Add(tt.at+tt.suspended), tt.at)); got != tt.open {
				t.Errorf("open: %v, want %v", got, tt.open)
			}
		})
	}
}

// A leader that finds that another one has the lease writes no more, whatever time it would have had.
func TestFenceClosesWhenAnotherLeads(t *testing.T) {
	f := newFence(Options{Identity: "us", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second})
	now := time.Now()
	f.recordWrite(now, resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, nil)
	f.recordRead(&resourcelock.LeaderElectionRecord{HolderIdentity: "us"})
	if !f.isOpen(now) {
		t.Error("it closes although the lease is ours")
	}
	f.recordRead(&resourcelock.LeaderElectionRecord{HolderIdentity: "them"})
	if f.isOpen(now) {
		t.Error("it stays open although another one has the lease")
	}
}

// A lease that counts whole seconds is over before a deadline that does not.
func TestFenceClosesWithTheLease(t *testing.T) {
	f := newFence(Options{Identity: "us", LeaseDuration: 2900 * time.Millisecond, RenewDeadline: 2500 * time.Millisecond})
	now := time.Now()
	f.recordWrite(now, resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, nil)
	if !f.isOpen(now.Add(1999*time.Millisecond)) || f.isOpen(now.Add(2*time.Second)) {
		t.Error("it must close after 2 s")
	}
}

// While the API server does not answer, a leader that gives up has to be done with that before its lease is over.
func TestFenceHurriesToGiveUp(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name                      string
		lease, deadline           time.Duration
		renewed, afterOtherLeader bool
		at                        time.Duration
		// want is how long a request may take; zero: as long as ever.
		want time.Duration
	}{
		{name: "never the leader", lease: 15 * time.Second, deadline: 10 * time.Second, at: time.Hour},
		{name: "it may lead", lease: 15 * time.Second, deadline: 10 * time.Second, renewed: true, at: 9 * time.Second},
		{name: "it may not", lease: 15 * time.Second, deadline: 10 * time.Second, renewed: true, at: 10 * time.Second, want: 5 * time.Second / 3},
		{name: "another one leads", lease: 15 * time.Second, deadline: 10 * time.Second, renewed: true, afterOtherLeader: true, at: 10 * time.Second},
		{name: "hardly any time", lease: 2900 * time.Millisecond, deadline: 2500 * time.Millisecond, renewed: true, at: 2 * time.Second, want: minResponseTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFence(Options{Identity: "us", LeaseDuration: tt.lease, RenewDeadline: tt.deadline})
			if tt.renewed {
				f.recordWrite(start, resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, nil)
			}
			if tt.afterOtherLeader {
				f.recordRead(&resourcelock.LeaderElectionRecord{HolderIdentity: "them"})
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := f.limit(t.Context(), start.Add(tt.at))
				defer cancel()
				var got time.Duration
				if deadline, found := ctx.Deadline(); found {
					got = deadline.Sub(began)
				}
				if got != tt.want {
					t.Errorf("it may take %v, want %v", got, tt.want)
				}
			})
		})
	}
}

type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error { c.closed = true; return nil }

func TestFencedClient(t *testing.T) {
	var served []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served = append(served, r.Method) }))
	defer server.Close()
	f := newFence(Options{Identity: "us", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second})
	client, err := rest.HTTPClientFor(f.wrapConfig(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	send := func(method string) (*closeRecorder, error) {
		body := &closeRecorder{Reader: strings.NewReader("x")}
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close() // there is none
		}
		return body, err
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if body, err := send(method); !errors.Is(err, kube.ErrFenced) || !body.closed {
			t.Errorf("%s before the election: %v, body closed: %v; want it refused", method, err, body.closed)
		}
	}
	if _, err := send(http.MethodGet); err != nil {
		t.Errorf("GET before the election: %v", err)
	}
	f.recordWrite(time.Now(), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, nil)
	if _, err := send(http.MethodPost); err != nil {
		t.Errorf("POST of the leader: %v", err)
	}
	if got := strings.Join(served, " "); got != "GET POST" {
		t.Errorf("the server saw %q, want GET and POST alone", got)
	}
}

// recordOf returns what a replica writes that holds a Lease for so many seconds.
func recordOf(identity string, seconds int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: identity, LeaseDurationSeconds: seconds, AcquireTime: metav1.Now(), RenewTime: metav1.Now(),
	}
}

// A leader that wakes up after another replica took over leaves the lease to that one, although the elector releases it.
func TestOnlyTheHolderReleases(t *testing.T) {
	namespace := env.Namespace(t)
	newLock := func(identity string) (resourcelock.Interface, *Fence) {
		client, err := coordinationv1client.NewForConfig(env.Config(t))
		if err != nil {
			t.Fatal(err)
		}
		f := newFence(Options{Identity: identity, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second})
		return f.wrapLock(&resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}), f
	}
	look := func(lock resourcelock.Interface) string {
		t.Helper()
		found, _, err := lock.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found.HolderIdentity
	}
	woken, _ := newLock("woken")
	leader, f := newLock("leader")
	if err := woken.Create(t.Context(), recordOf("woken", 15)); err != nil {
		t.Fatal(err)
	}
	look(leader)
	if err := leader.Update(t.Context(), recordOf("leader", 15)); err != nil {
		t.Fatal(err)
	}
	if got := f.Previous(); got != "woken" {
		t.Errorf("the holder before: got %q, want woken", got)
	}
	// What the elector does to release.
	look(woken)
	if err := woken.Update(t.Context(), recordOf("", 1)); err != nil {
		t.Errorf("to release what another one holds: %v", err)
	}
	if got := look(leader); got != "leader" {
		t.Errorf("the holder: got %q, want leader", got)
	}
	if err := leader.Update(t.Context(), recordOf("", 1)); err != nil {
		t.Errorf("to release: %v", err)
	}
	if got := look(woken); got != "" {
		t.Errorf("after the release: %q holds it", got)
	}
}
