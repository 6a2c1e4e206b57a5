package pod

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// late are watches that are late: they have a Secret as it was, and no Pod.
type late struct {
	cache.Cache
	secret *corev1.Secret
}

// Get implements client.Reader.
func (l late) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if secret, ok := object.(*corev1.Secret); ok && l.secret != nil {
		l.secret.DeepCopyInto(secret)
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

// TestNeverTwiceWithLateWatches starts a machine that another manager has started, by a manager whose watches do not have that yet. The
// second start is refused or does nothing, and the Pod and its record are those of the first.
func TestNeverTwiceWithLateWatches(t *testing.T) {
	for name, lost := range map[string]bool{"the Secret is older": false, "the Secret was lost and created again": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.open(t)
			machine := c.machine(uuid.NewUUID())
			secrets, pods := c.api.CoreV1().Secrets(recordNamespace), c.api.CoreV1().Pods(machine.Namespace)
			get := func() (*corev1.Secret, *corev1.Pod) {
				t.Helper()
				secret, err := secrets.Get(t.Context(), recordName(machine.Namespace, objectName(machine.UID)), metav1.GetOptions{})
				pod, podErr := pods.Get(t.Context(), objectName(machine.UID), metav1.GetOptions{})
				if errors.Join(err, podErr) != nil {
					t.Fatal(err, podErr)
				}
				return secret, pod
			}
			c.must("Create", c.driver.Create(t.Context(), machine))
			old, err := secrets.Get(t.Context(), recordName(machine.Namespace, objectName(machine.UID)), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c.must("Start", c.driver.Start(t.Context(), machine))
			first := c.until(machine, "it runs", isRunning)
			if lost {
				if err := secrets.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				c.must("Create", c.driver.Create(t.Context(), machine))
				if old, err = secrets.Get(t.Context(), old.Name, metav1.GetOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			secret, pod := get()
			second := &Driver{processors: emulated, images: c.driver.images, records: recordNamespace, client: c.driver.client, cache: late{c.driver.cache, old}}
			err = second.Start(t.Context(), machine)
			if lost && !errors.Is(err, backend.ErrInProgress) || !lost && !apierrors.IsConflict(err) {
				t.Errorf("the second start: %v", err)
			}
			nowSecret, now := get()
			if now.UID != pod.UID || now.Annotations[annotationRun] != first.Run {
				t.Errorf("the Pod was %s of run %s, and is %s of run %s", pod.UID, first.Run, now.UID, now.Annotations[annotationRun])
			}
			if !lost && nowSecret.ResourceVersion != secret.ResourceVersion {
				t.Error("the Secret has changed")
			}
			if after := c.until(machine, "it still runs", isRunning); after.Run != first.Run {
				t.Errorf("the run was %s, and is %s", first.Run, after.Run)
			}
			c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
			c.until(machine, "it is off", func(s backend.Server) bool {
				return s.State == backend.StateStopped && s.Ended != nil && s.Ended.Cause == backend.CauseRequested
			})
		})
	}
}

// transport is a function that makes requests.
type transport func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestRequestsOfANewMachine counts the requests until the Pod of a new machine is created: thousands of machines may be created at once.
func TestRequestsOfANewMachine(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	var requests map[string]int
	config := env.Config(t)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			if parts := strings.Split(r.URL.Path, "/"); requests != nil && len(parts) > 5 && !r.URL.Query().Has("watch") {
				requests[r.Method+" "+parts[5]]++
			}
			mu.Unlock()
			return to.RoundTrip(r)
		})
	})
	c.openWith(t, config)
	for _, test := range []struct {
		name string
		disk int64
		want map[string]int
	}{
		{"without a disk", 0, map[string]int{"POST secrets": 2, "PUT secrets": 1, "POST pods": 1}},
		{"with a root disk", 64 << 20, map[string]int{
			"GET secrets": 1, "POST persistentvolumeclaims": 1, "POST secrets": 2, "GET persistentvolumeclaims": 1, "PUT secrets": 1, "POST pods": 1,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := c.machine(uuid.NewUUID())
			machine.DiskBytes = test.disk
			mu.Lock()
			requests = map[string]int{}
			mu.Unlock()
			c.must("Create", c.driver.Create(t.Context(), machine))
			c.must("Start", c.driver.Start(t.Context(), machine))
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(test.want, requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
