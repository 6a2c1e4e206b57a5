package ping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// checks is a server that counts pings.
type checks struct {
	*httptest.Server
	// got has method, path and query of the requests, and bodies what they sent.
	got    chan string
	bodies chan Body
}

// newChecks returns a server that answers requests with these statuses, and then with 200.
func newChecks(t *testing.T, statuses ...int) *checks {
	t.Helper()
	c := &checks{got: make(chan string, 100), bodies: make(chan Body, 100)}
	answers := make(chan int, len(statuses))
	for _, status := range statuses {
		answers <- status
	}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := Body{}
		_ = json.NewDecoder(r.Body).Decode(&body) // compared by the test
		c.bodies <- body
		c.got <- r.Method + " " + r.URL.RequestURI()
		select {
		case status := <-answers:
			w.WriteHeader(status)
		default:
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// startSender starts a pinger that makes further attempts at once. It returns the events, and stops it.
func startSender(t *testing.T, networks []netip.Prefix, secret map[string][]byte) (p *Sender, recorded func() []string) {
	t.Helper()
	client := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "market", Name: "check"}, Data: secret}).Build()
	recorder := events.NewFakeRecorder(100)
	p = NewSender(client, kube.NewRecorder(stablev1.SchemeGroupVersion.WithKind("CronTab"), recorder), networks)
	p.pause = time.Microsecond
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- p.Start(ctx) }()
	return p, func() []string {
		waitUntilSent(t, p)
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Start returns %v", err)
		}
		close(recorder.Events)
		var all []string
		for event := range recorder.Events {
			all = append(all, event)
		}
		return all
	}
}

// waitUntilSent returns when no ping waits.
func waitUntilSent(t *testing.T, p *Sender) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		total := p.total
		p.mu.Unlock()
		if total == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return
		}
	}
}

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// pingsTo returns the pings of the start and the failure of a run.
func pingsTo(target *stablev1.Ping) []*Ping {
	var pings []*Ping
	for _, event := range []stablev1.PingEvent{stablev1.PingStart, stablev1.PingFailure} {
		pings = append(pings, &Ping{
			About:  &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "market", Name: "tick", UID: "uid"}},
			Target: target, Run: "run",
			Body: Body{CronTab: "market/tick", Job: "tick-1", ScheduledTime: noon, Event: event},
		})
	}
	return pings
}

// received returns what a server has received.
func received[T any](from chan T) []T {
	close(from)
	var all []T
	for one := range from {
		all = append(all, one)
	}
	return all
}

func TestSenderSends(t *testing.T) {
	for _, test := range []struct {
		name     string
		answers  []int
		want     []string
		wantSaid string
	}{
		{"in order", nil, []string{"/start", "/fail"}, ""},
		{"again after errors, before the next", []int{503, 429, 500, 502}, []string{"/start", "/start", "/start", "/start", "/start", "/fail"}, ""},
		{"at most five times", []int{503, 503, 503, 503, 503}, []string{"/start", "/start", "/start", "/start", "/start", "/fail"},
			"The ping for the event Start failed, attempts: 5. The last error: the server answered 503 Service Unavailable"},
		{"once if the server refuses it", []int{200, 404}, []string{"/start", "/fail"},
			"The ping for the event Failure failed, attempts: 1. The last error: the server answered 404 Not Found. Check the URL in spec.ping.url"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := newChecks(t, test.answers...)
			p, recorded := startSender(t, loopback, nil)
			p.Add(pingsTo(&stablev1.Ping{URL: server.URL + "/check"})...)
			said := recorded()
			var want []string
			for _, path := range test.want {
				want = append(want, "POST /check"+path+"?rid=run")
			}
			if diff := cmp.Diff(want, received(server.got)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			bodies := received(server.bodies)
			first := Body{CronTab: "market/tick", Job: "tick-1", ScheduledTime: noon, Event: stablev1.PingStart}
			last := Body{CronTab: "market/tick", Job: "tick-1", ScheduledTime: noon, Event: stablev1.PingFailure}
			if diff := cmp.Diff([]Body{first, last}, []Body{bodies[0], bodies[len(bodies)-1]}); diff != "" {
				t.Errorf("bodies (-want +got):\n%s", diff)
			}
			expectPingFailed(t, said, test.wantSaid)
		})
	}
}

// expectPingFailed fails the test unless the events are one PingFailed with this text; none if it is empty.
func expectPingFailed(t *testing.T, said []string, want string) {
	t.Helper()
	if want == "" && len(said) > 0 || want != "" && (len(said) != 1 || said[0] != "Warning PingFailed "+want) {
		t.Errorf("the events are %q, want %q", said, want)
	}
}

// The URL of a Secret is in no event.
func TestSenderErrors(t *testing.T) {
	server := newChecks(t)
	gone := newChecks(t)
	gone.Close()
	redirect := httptest.NewServer(http.RedirectHandler(server.URL+"/secret", http.StatusTemporaryRedirect))
	defer redirect.Close()
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }))
	defer loop.Close()
	const correct = `the key "url" of the Secret "check": it is not an http or https URL without user name and password. Correct it`
	for _, test := range []struct {
		name     string
		networks []netip.Prefix
		url      string
		want     string
	}{
		{"loopback", nil, server.URL + "/secret", `the address is not allowed: <host> is neither on the public Internet nor in crontabs.pingNetworks`},
		{"metadata of a cloud", nil, "http://169.254.169.254/secret", `the address is not allowed: <host> is neither on the public Internet nor in crontabs.pingNetworks`},
		{"a server that is gone", loopback, gone.URL + "/secret", `connect: connection refused`},
		{"a redirect loop", loopback, loop.URL + "/secret", "more than 5 redirects"},
		{"not a URL", loopback, "http://secret:secret", correct},
		{"another scheme", loopback, "gopher://secret", correct},
		{"user info", loopback, "http://secret:secret@127.0.0.1", correct},
		{"no such key", loopback, "", `the Secret "check" of spec.ping.secretRef does not exist, or has no key "url". Create it`},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := map[string][]byte{"url": []byte(test.url + "\n")}
			if test.url == "" {
				data = nil
			}
			p, recorded := startSender(t, test.networks, data)
			p.Add(pingsTo(&stablev1.Ping{SecretRef: &stablev1.PingSecret{Name: "check", Key: "url"}})[:1]...)
			said := recorded()
			if len(said) != 1 || !strings.HasSuffix(said[0], "The last error: "+test.want) || strings.Contains(said[0], "/secret") {
				t.Errorf("the events are %q, want %s", said, test.want)
			}
		})
	}
	if got := received(server.got); len(got) > 0 {
		t.Errorf("the server that is not allowed got %v", got)
	}
}

func TestSenderWithoutPermission(t *testing.T) {
	p, recorded := startSender(t, loopback, nil)
	p.secrets = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewForbidden(corev1.Resource("secrets"), "check", errors.New("no role"))
	}})
	p.Add(pingsTo(&stablev1.Ping{SecretRef: &stablev1.PingSecret{Name: "check", Key: "url"}})[:1]...)
	expectPingFailed(t, recorded(), `The ping for the event Start failed, attempts: 1. The last error: the manager may not read the Secret "check" of spec.ping.secretRef. Grant it the verb get for this Secret`)
}

func TestSenderReadsSecrets(t *testing.T) {
	server := newChecks(t)
	p, recorded := startSender(t, loopback, map[string][]byte{"url": []byte(server.URL + "/secret\n")})
	p.Add(pingsTo(&stablev1.Ping{SecretRef: &stablev1.PingSecret{Name: "check", Key: "url"}})...)
	expectPingFailed(t, recorded(), "")
	if diff := cmp.Diff([]string{"POST /secret/start?rid=run", "POST /secret/fail?rid=run"}, received(server.got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A CronTab with a slow server, and many CronTabs, cannot fill the memory.
func TestSenderDropsWhatIsTooMuch(t *testing.T) {
	count := func() float64 {
		metric := &dto.Metric{}
		if err := results.WithLabelValues(dropped).Write(metric); err != nil {
			t.Fatal(err)
		}
		return metric.GetCounter().GetValue()
	}
	before := count()
	p := NewSender(nil, nil, nil)
	for range maxEach + 1 {
		p.Add(pingsTo(&stablev1.Ping{})[0])
	}
	for i := range maxWaiting {
		one := pingsTo(&stablev1.Ping{})[0]
		one.About.UID = types.UID(fmt.Sprint(i))
		p.Add(one)
	}
	if p.total != maxWaiting || len(p.waiting) != maxWaiting-maxEach+1 {
		t.Errorf("%d pings of %d CronTabs wait", p.total, len(p.waiting))
	}
	if got := count() - before; got != 1+maxEach {
		t.Errorf("%v were dropped", got)
	}
}
