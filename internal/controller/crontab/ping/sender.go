// Package ping tells a server, such as healthchecks.io, of the runs of CronTabs (spec.ping).
package ping

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/egress"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	workers = 4
	// maxWaiting limits the pings that wait to be sent, and maxEach those of one CronTab, so that one with a slow server does not
	// take the place of the others.
	maxWaiting, maxEach = 1000, 100
	// maxAttempts are made with pauses of firstPause, twice that, four times that, and so on.
	maxAttempts = 5
	firstPause  = 4 * time.Second
	// timeout limits one attempt, and drain the last ones when the manager stops.
	timeout = 10 * time.Second
	drain   = 3 * time.Second
)

// results counts the pings of all CronTabs.
var results = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "crontab_pings_total",
	Help: "Pings by result: sent, failed (after all attempts), or dropped (too many were waiting).",
}, []string{"result"})

const sent, failed, dropped = "sent", "failed", "dropped"

func init() {
	metrics.Registry.MustRegister(results)
	for _, result := range []string{sent, failed, dropped} {
		results.WithLabelValues(result) // a rate needs the 0 before the first
	}
}

// NetworksOption is the option with the networks that pings can reach besides the public Internet.
const NetworksOption = "crontabs.pingNetworks"

// Sender sends pings in the background, so that no run waits for them. It sends those of a CronTab one after another: the last one that
// a server gets is about the last event.
type Sender struct {
	secrets client.Reader
	events  *kube.Recorder
	client  *http.Client
	pause   time.Duration

	mu sync.Mutex
	// waiting has the pings of each CronTab by its UID, earliest first; total is their number.
	waiting map[types.UID][]*Ping
	total   int
	// queue has the CronTabs of waiting; nil before Start.
	queue workqueue.TypedRateLimitingInterface[types.UID]
}

// NewSender returns a Sender that reaches the public Internet and these networks. It reads Secrets of spec.ping.secretRef.
func NewSender(secrets client.Reader, events *kube.Recorder, networks []netip.Prefix) *Sender {
	return &Sender{
		secrets: secrets, events: events, client: egress.Filter{Networks: networks}.NewClient(NetworksOption, timeout),
		pause: firstPause, waiting: map[types.UID][]*Ping{},
	}
}

// Add adds pings, or drops them if too many wait. It does not block.
func (p *Sender) Add(pings ...*Ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range pings {
		uid := one.About.UID
		if p.total >= maxWaiting || len(p.waiting[uid]) >= maxEach {
			results.WithLabelValues(dropped).Inc()
			continue
		}
		p.waiting[uid] = append(p.waiting[uid], one)
		p.total++
		if p.queue != nil && len(p.waiting[uid]) == 1 {
			p.queue.Add(uid)
		}
	}
}

// Start implements manager.Runnable. When the manager stops, the pings that are due get one more attempt.
func (p *Sender) Start(ctx context.Context) error {
	p.mu.Lock()
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](p.pause, p.pause<<maxAttempts))
	for uid := range p.waiting {
		p.queue.Add(uid)
	}
	p.mu.Unlock()
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for p.sendNext(sending) {
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	//nolint:forbidigo // clock: this is about the end of the process.
	time.AfterFunc(drain, cancel)
	group.Wait()
	return nil
}

// sendNext sends the first ping of the next CronTab. It returns false after the queue was shut down and is empty.
func (p *Sender) sendNext(ctx context.Context) bool {
	uid, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(uid)
	p.mu.Lock()
	one := p.waiting[uid][0]
	p.mu.Unlock()
	err := p.send(ctx, one)
	attempts := p.queue.NumRequeues(uid) + 1
	if err != nil && !errors.As(err, new(finalError)) && attempts < maxAttempts {
		p.queue.AddRateLimited(uid)
		return true
	}
	p.queue.Forget(uid)
	if err == nil {
		results.WithLabelValues(sent).Inc()
	} else {
		results.WithLabelValues(failed).Inc()
		p.events.Warning(one.About, stablev1.ReasonPingFailed, "Ping",
			fmt.Sprintf("The ping for the event %s failed, attempts: %d. The last error: %s", one.Body.Event, attempts, err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.waiting[uid] = p.waiting[uid][1:]; len(p.waiting[uid]) == 0 {
		delete(p.waiting, uid)
	} else {
		p.queue.Add(uid)
	}
	return true
}

// finalError is an error that another attempt would not change.
type finalError string

func (e finalError) Error() string { return string(e) }

// send makes one attempt. Its errors have no part of the URL.
func (p *Sender) send(ctx context.Context, one *Ping) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	check, field, err := p.url(ctx, one)
	if err != nil {
		return err
	}
	u, err := one.url(check)
	if err != nil {
		return finalError(fmt.Sprintf("%s: %s. Correct it", field, err))
	}
	body, err := json.Marshal(one.Body)
	if err != nil {
		return finalError(err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return finalError(fmt.Sprintf("%s: %s. Correct it", field, errURL))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "keelson")
	response, err := p.client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	_ = response.Body.Close() // the status says it all
	answer := fmt.Sprintf("the server answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch code := response.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return errors.New(answer)
	default:
		return finalError(fmt.Sprintf("%s. Check the URL in %s", answer, field))
	}
}

// url returns the URL of the check of a ping, and the field that it comes from. The role of the manager has no Secrets: who uses one grants
// it, see docs/crontab-ping.md.
func (p *Sender) url(ctx context.Context, one *Ping) (check, field string, err error) {
	ref := one.Target.SecretRef
	if ref == nil {
		return one.Target.URL, "spec.ping.url", nil
	}
	secret := &corev1.Secret{}
	err = p.secrets.Get(ctx, client.ObjectKey{Namespace: one.About.Namespace, Name: ref.Name}, secret)
	value, found := secret.Data[ref.Key]
	switch {
	case apierrors.IsNotFound(err), err == nil && !found:
		return "", "", finalError(fmt.Sprintf("the Secret %q of spec.ping.secretRef does not exist, or has no key %q. Create it", ref.Name, ref.Key))
	case apierrors.IsForbidden(err):
		return "", "", finalError(fmt.Sprintf("the manager may not read the Secret %q of spec.ping.secretRef. Grant it the verb get for this Secret", ref.Name))
	case err != nil:
		return "", "", fmt.Errorf("read the Secret %q of spec.ping.secretRef: %s", ref.Name, kube.APIWords(err))
	}
	return strings.TrimSpace(string(value)), fmt.Sprintf("the key %q of the Secret %q", ref.Key, ref.Name), nil
}

// withoutURL returns the error of a request without the URL and its host, which may be secret.
func withoutURL(err error) error {
	failed := &url.Error{}
	if !errors.As(err, &failed) {
		return err
	}
	text := failed.Err.Error()
	if connecting := (*net.OpError)(nil); errors.As(err, &connecting) {
		text = connecting.Err.Error()
	}
	if u, err := url.Parse(failed.URL); err == nil && u.Hostname() != "" {
		text = strings.ReplaceAll(text, u.Hostname(), "<host>")
	}
	switch {
	case errors.Is(err, egress.ErrAddress):
		return finalError(text)
	case failed.Timeout():
		return fmt.Errorf("the server did not answer within %s", timeout)
	}
	return errors.New(text)
}
