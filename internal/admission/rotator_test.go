package admission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
)

const service = "keelson-webhook.keelson-system.svc"

var times = Times{Authority: 30 * time.Hour, Serving: 3 * time.Hour, Look: 10 * time.Second, Overlap: 10 * time.Second}

// world is replicas that keep their certificates in one store, and an API server.
type world struct {
	clock *clocktesting.FakeClock
	store *memoryStore
	// bundle is what the API server trusts; away says that it does not take another one.
	bundle []byte
	away   error
	told   int
}

func newWorld() *world {
	return &world{clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), store: &memoryStore{}}
}

func (w *world) newReplica() *Rotator {
	return NewRotator(Options{
		Names: []string{service, "127.0.0.1"}, Store: w.store, Times: times, Clock: w.clock, Log: logr.Discard(),
		Trust: func(_ context.Context, bundle []byte) error {
			if w.away == nil && !bytes.Equal(w.bundle, bundle) {
				w.bundle = bundle
				w.told++
			}
			return w.away
		},
	})
}

// step lets some time pass and the replicas do what they do; the first one leads.
func (w *world) step(t *testing.T, d time.Duration, replicas ...*Rotator) {
	t.Helper()
	w.clock.Step(d)
	if _, err := replicas[0].renew(t.Context()); err != nil && w.away == nil {
		t.Fatalf("the leader: %v", err)
	}
	for _, replica := range replicas {
		if _, err := replica.follow(t.Context()); err != nil {
			t.Fatalf("a replica: %v", err)
		}
	}
}

// verify checks that the API server trusts what a replica serves, by each of its names.
func (w *world) verify(t *testing.T, replica *Rotator) {
	t.Helper()
	certificate, err := replica.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(w.bundle) {
		t.Fatalf("this is no bundle: %q", w.bundle)
	}
	for _, name := range []string{service, "127.0.0.1"} {
		_, err := certificate.Leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: roots, CurrentTime: w.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			t.Fatalf("the API server does not trust a replica as %s: %v", name, err)
		}
	}
}

func TestNoCertificateBeforeTheLeaderMadeOne(t *testing.T) {
	w := newWorld()
	replica := w.newReplica()
	again, err := replica.follow(t.Context())
	if err != nil || again != retryInterval {
		t.Errorf("follow: got %v, %v, want to look again after %v", again, err, retryInterval)
	}
	if replica.Check() == nil {
		t.Error("a replica without a certificate says that it can serve")
	}
}

// Over three lives of the authority the API server trusts every replica at every moment, also the one that hears of
// everything last.
func TestRotation(t *testing.T) {
	w := newWorld()
	leader, second, late := w.newReplica(), w.newReplica(), w.newReplica()
	w.step(t, 0, leader, second, late)
	seen := map[string]bool{}
	for elapsed, steps := time.Duration(0), 0; elapsed < 3*times.Authority; steps++ {
		const pause = 5 * time.Minute
		replicas := []*Rotator{leader, second}
		if steps%3 == 2 {
			replicas = append(replicas, late) // within what is left of its certificate
		}
		// In between, each moment when something may change hands.
		w.step(t, pause, replicas...)
		for _, replica := range []*Rotator{leader, second, late} {
			w.verify(t, replica)
		}
		certificate, _ := leader.GetCertificate(nil)
		seen[string(certificate.Leaf.AuthorityKeyId)] = true
		elapsed += pause
	}
	if len(seen) < 4 {
		t.Errorf("%d authorities in three lives of one, each of which is renewed at half of it", len(seen))
	}
	if w.told > 3*len(seen) {
		t.Errorf("the API server was told %d times of %d authorities", w.told, len(seen))
	}
}

// Nothing is signed by an authority of which the API server was not told.
func TestRotationWaitsForTheAPIServer(t *testing.T) {
	w := newWorld()
	leader := w.newReplica()
	w.step(t, 0, leader)
	w.away = errors.New("away")
	before := w.store.version
	for range 10 {
		w.step(t, times.Authority*2/3/9+time.Minute, leader)
	}
	if w.store.version != before {
		t.Fatal("another authority signs, and the API server does not know it")
	}
	w.away = nil
	w.step(t, time.Minute, leader)
	w.verify(t, leader)
	if w.store.version != before {
		t.Error("another authority signs at the moment that the API server hears of it")
	}
	w.step(t, times.Overlap, leader)
	if w.store.version == before {
		t.Error("there is no other authority after the overlap")
	}
	w.verify(t, leader)
}

// The next leader goes on where the one before it ended, at whatever moment that was.
func TestAnotherLeaderGoesOn(t *testing.T) {
	w := newWorld()
	first, second := w.newReplica(), w.newReplica()
	w.step(t, 0, first, second)
	w.step(t, times.Authority*2/3, first, second) // tells of the next authority, and ends
	w.verify(t, second)
	for range 3 {
		w.step(t, times.Overlap, second, first)
		w.verify(t, first)
		w.verify(t, second)
	}
	if w.store.version != 2 {
		t.Errorf("%d authorities were kept, want 2", w.store.version)
	}
}

func TestDamagedStoreIsMended(t *testing.T) {
	w := newWorld()
	leader := w.newReplica()
	w.step(t, 0, leader)
	damaged := &damagedStore{Store: w.store, damaged: true}
	leader.options.Store = damaged
	if again, err := leader.follow(t.Context()); err != nil || again != retryInterval {
		t.Errorf("follow: got %v, %v, want to look again after %v", again, err, retryInterval)
	}
	w.verify(t, leader)
	w.step(t, time.Second, leader)
	w.verify(t, leader)
	if damaged.damaged {
		t.Error("it was not mended")
	}
}

// damagedStore has something else until it is written.
type damagedStore struct {
	Store
	damaged bool
}

func (s *damagedStore) load(ctx context.Context) (*authority, string, error) {
	if s.damaged {
		return nil, "7", errDamaged
	}
	return s.Store.load(ctx)
}

func (s *damagedStore) save(ctx context.Context, a *authority, version string) error {
	s.damaged = false
	return s.Store.save(ctx, a, version)
}

func TestAuthorityIsReadAsItWasWritten(t *testing.T) {
	now := time.Now()
	first, err := newAuthority(now, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newAuthority(now, time.Hour, first)
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(second.Key)
	if err != nil {
		t.Fatal(err)
	}
	read, err := parseAuthority(second.bundle(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !read.Certificate.Equal(second.Certificate) || !bytes.Equal(read.bundle(), second.bundle()) || !read.Key.(*ecdsa.PrivateKey).Equal(second.Key) {
		t.Error("it was read as something else")
	}
	for name, parts := range map[string][2][]byte{
		"nothing":                {nil, nil},
		"the key of another one": {first.bundle(), key},
		"no key":                 {second.bundle(), []byte("x")},
	} {
		if _, err := parseAuthority(parts[0], parts[1]); err == nil {
			t.Errorf("%s is read as an authority", name)
		}
	}
}

// Versions before this one wrote the key as PKCS #8.
func TestAuthorityOfAnEarlierVersionIsRead(t *testing.T) {
	now := time.Now()
	before, err := newAuthority(now, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(before.Key)
	if err != nil {
		t.Fatal(err)
	}
	read, err := parseAuthority(before.bundle(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	if err != nil {
		t.Fatal(err)
	}
	issued, err := read.issue(now, time.Minute, []string{service})
	if err != nil {
		t.Fatal(err)
	}
	if err := issued.Leaf.CheckSignatureFrom(before.Certificate); err != nil {
		t.Error(err)
	}
}
