package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// moving is a Cluster as a manager of an earlier version leaves it.
type moving struct {
	*testing.T
	client.WithWatch
	from, to, name string
	cluster        *v1alpha1.Cluster
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	m := &moving{T: t, from: env.Namespace(t), to: env.Namespace(t)}
	m.WithWatch = harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme))
	m.name = "of-" + m.from
	// Nothing may depend on a reconcile: it is paused.
	m.cluster = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: v1alpha1.ClusterSpec{Paused: true}}
	m.do(m.Create(t.Context(), m.cluster))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = m.Delete(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: m.name}})    // may be gone
		_ = m.Delete(ctx, &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: m.name}}) // may be gone
	})
	m.do(m.Create(t.Context(), m.secret(m.from, "kept")))
	owner := m.secret("", "").OwnerReferences
	kubeconfig := &v1alpha1.Kubeconfig{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, OwnerReferences: owner},
		Spec:       v1alpha1.KubeconfigSpec{SecretRef: m.ref(m.from)},
	}
	m.do(m.Create(t.Context(), kubeconfig))
	m.cluster.Status.KubeconfigRef = &v1alpha1.KubeconfigReference{Name: m.name, SecretRef: m.ref(m.from)}
	m.do(m.Status().Update(t.Context(), m.cluster))
	return m
}

func (m *moving) do(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *moving) ref(namespace string) *v1alpha1.SecretReference {
	return &v1alpha1.SecretReference{Namespace: namespace, Name: m.name + "-kubeconfig", Key: v1alpha1.SecretKey}
}

// secret is that of the Cluster, in a namespace.
func (m *moving) secret(namespace, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: m.name + "-kubeconfig",
			Labels:      map[string]string{v1alpha1.LabelClusterName: m.name, labelManagedBy: kube.FieldManager},
			Annotations: map[string]string{"example.com/note": "kept"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Cluster", Name: m.name, UID: m.cluster.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Type: v1alpha1.SecretTypeKubeconfig, Data: map[string][]byte{v1alpha1.SecretKey: []byte(value)},
	}
}

func (m *moving) mover(c client.WithWatch) *mover {
	return &mover{client: c, live: m.WithWatch, from: m.from, to: m.to, authority: m.from, log: newTestLogger(m.T), tried: make(chan struct{})}
}

// at returns what the Secret has in a namespace; "" if there is none.
func (m *moving) at(namespace string) string {
	m.Helper()
	var secret corev1.Secret
	err := m.Get(m.Context(), client.ObjectKey{Namespace: namespace, Name: m.name + "-kubeconfig"}, &secret)
	if apierrors.IsNotFound(err) {
		return ""
	}
	m.do(err)
	want := m.secret(namespace, "")
	if diff := cmp.Diff([]any{want.Labels, want.Annotations, want.OwnerReferences, want.Type},
		[]any{secret.Labels, secret.Annotations, secret.OwnerReferences, secret.Type}); diff != "" {
		m.Errorf("the Secret in %s (-want +got):\n%s", namespace, diff)
	}
	return string(secret.Data[v1alpha1.SecretKey])
}

// refs returns the namespaces that the Kubeconfig and the status refer to.
func (m *moving) refs() []string {
	m.Helper()
	var kubeconfig v1alpha1.Kubeconfig
	m.do(m.Get(m.Context(), client.ObjectKey{Name: m.name}, &kubeconfig))
	m.do(m.Get(m.Context(), client.ObjectKeyFromObject(m.cluster), m.cluster))
	return []string{kubeconfig.Spec.SecretRef.Namespace, m.cluster.Status.KubeconfigRef.SecretRef.Namespace}
}

// expectMoved fails the test if the Secret is not at its present place, and only there.
func (m *moving) expectMoved(value string) {
	m.Helper()
	if old, present := m.at(m.from), m.at(m.to); old != "" || present != value {
		m.Errorf("the former place has %q, the present one %q, want it to have %q", old, present, value)
	}
	if diff := cmp.Diff([]string{m.to, m.to}, m.refs()); diff != "" {
		m.Errorf("references of Kubeconfig and status (-want +got):\n%s", diff)
	}
}

// The manager is killed before and after each write of the move. At any time what is referred to exists, and the next manager
// moves the rest.
func TestMoveIsKilledAtEachWrite(t *testing.T) {
	for _, moment := range []harness.Moment{harness.Before, harness.After} {
		for n := 0; ; n++ {
			reached := true
			t.Run(fmt.Sprintf("%s write %d", moment, n), func(t *testing.T) {
				m := newMoving(t)
				killed := errors.New("killed")
				faulty, wasReached := harness.OnWrite(m.WithWatch, n, moment, func() error { panic(killed) })
				func() {
					defer func() {
						if r := recover(); r != nil && r != any(killed) {
							panic(r)
						}
					}()
					m.do(m.mover(faulty).move(t.Context()))
				}()
				reached = wasReached()
				for _, namespace := range m.refs() {
					if got := m.at(namespace); got != "kept" {
						t.Errorf("the Secret in %s, which is referred to, has %q", namespace, got)
					}
				}
				m.do(m.mover(m.WithWatch).move(t.Context()))
				m.expectMoved("kept")
				counted, wrote := harness.OnWrite(m.WithWatch, 0, harness.Before, func() error { return errors.New("a write") })
				if err := m.mover(counted).move(t.Context()); err != nil || wrote() {
					t.Errorf("a move without anything to do: %v", err)
				}
			})
			if !reached {
				if n < 4 {
					t.Errorf("only %d writes", n)
				}
				break
			}
		}
	}
}

// Of two copies the one counts that the Kubeconfig refers to: an earlier version may have run again in between.
func TestMoveTakesTheNewerCopy(t *testing.T) {
	t.Run("at the former place", func(t *testing.T) {
		m := newMoving(t)
		m.do(m.Create(t.Context(), m.secret(m.to, "older")))
		m.do(m.mover(m.WithWatch).move(t.Context()))
		m.expectMoved("kept")
	})
	t.Run("at the present place", func(t *testing.T) {
		m := newMoving(t)
		m.do(m.Create(t.Context(), m.secret(m.to, "newer")))
		var kubeconfig v1alpha1.Kubeconfig
		m.do(m.Get(t.Context(), client.ObjectKey{Name: m.name}, &kubeconfig))
		kubeconfig.Spec.SecretRef = m.ref(m.to)
		m.do(m.Update(t.Context(), &kubeconfig))
		m.do(m.mover(m.WithWatch).move(t.Context()))
		m.expectMoved("newer")
	})
}

// What belongs to others stays as it is.
func TestMoveLeavesOthersAlone(t *testing.T) {
	t.Run("a Secret at the present place", func(t *testing.T) {
		m := newMoving(t)
		m.do(m.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.to, Name: m.name + "-kubeconfig"}}))
		err := m.mover(m.WithWatch).move(t.Context())
		if want := "the kubeconfig of Cluster " + m.name + " to Secret " + m.to + "/" + m.name + "-kubeconfig, which belongs to another owner"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("move: %v, want %q", err, want)
		}
		if m.at(m.from) != "kept" {
			t.Error("the Secret is gone")
		}
		if diff := cmp.Diff([]string{m.from, m.from}, m.refs()); diff != "" {
			t.Errorf("references (-want +got):\n%s", diff)
		}
		m.do(m.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.to, Name: m.name + "-kubeconfig"}}))
		m.do(m.mover(m.WithWatch).move(t.Context()))
		m.expectMoved("kept")
	})
	t.Run("a Secret of a Cluster that is gone", func(t *testing.T) {
		m := newMoving(t)
		other := m.secret(m.from, "gone")
		other.Name, other.OwnerReferences[0].UID = "gone-kubeconfig", "gone"
		m.do(m.Create(t.Context(), other))
		m.do(m.mover(m.WithWatch).move(t.Context()))
		m.expectMoved("kept")
		err := m.Get(t.Context(), client.ObjectKey{Namespace: m.to, Name: other.Name}, &corev1.Secret{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("its copy: %v", err)
		}
	})
	t.Run("Secrets of Cluster API, and of users", func(t *testing.T) {
		m := newMoving(t)
		capi, users := m.secret(m.from, "theirs"), m.secret(m.from, "theirs")
		capi.Name, users.Name = "capi", "users"
		delete(capi.Labels, labelManagedBy)
		users.Type, users.OwnerReferences = corev1.SecretTypeOpaque, nil
		m.do(m.Create(t.Context(), capi))
		m.do(m.Create(t.Context(), users))
		m.do(m.mover(m.WithWatch).move(t.Context()))
		m.expectMoved("kept")
		m.do(m.Get(t.Context(), client.ObjectKeyFromObject(capi), capi))
		m.do(m.Get(t.Context(), client.ObjectKeyFromObject(users), users))
	})
}

// The former authority of the webhook goes; what else has its name does not.
func TestMoveRemovesTheAuthority(t *testing.T) {
	for name, labels := range map[string]map[string]string{"ours": {labelName: "keelson"}, "somebody's": nil} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.from, Name: admission.SecretName, Labels: labels}}
			m.do(m.Create(t.Context(), secret))
			m.do(m.mover(m.WithWatch).move(t.Context()))
			err := m.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
			if isGone := apierrors.IsNotFound(err); isGone != (labels != nil) {
				t.Errorf("it is gone: %t", isGone)
			}
		})
	}
}

// A user who may see nothing at the former place never had anything there: that is no reason to fail.
func TestMoveWithoutPermission(t *testing.T) {
	m := newMoving(t)
	config := rest.CopyConfig(env.Config(t))
	config.Impersonate.UserName = "nobody-of-" + m.from
	nobody := harness.Client(t, config, harness.Scheme(t, v1alpha1.AddToScheme))
	v := m.mover(nobody)
	v.live = nobody
	m.do(v.move(t.Context()))
	if m.at(m.from) != "kept" {
		t.Error("the Secret is gone")
	}
}

// Controllers start after the first attempt, because they would find a Secret missing that is not moved yet.
func TestControllersWaitForTheMove(t *testing.T) {
	moved := make(chan struct{})
	inner := &fakeWarmable{started: make(chan struct{})}
	c := &trackedController{warmable: inner, moved: moved}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Start(stopped); err != nil {
		t.Errorf("Start of a manager that stops: %v", err)
	}
	result := make(chan error, 1)
	go func() { result <- c.Start(t.Context()) }()
	select {
	case <-inner.started:
		t.Error("it has started before the move")
	default:
	}
	close(moved)
	if err := within(t, "the start", result); err != nil {
		t.Errorf("Start: %v", err)
	}
	within(t, "the workers to start", inner.started)
}

// fakeWarmable is a controller that ends at once.
type fakeWarmable struct {
	warmable
	started chan struct{}
}

func (w *fakeWarmable) Start(context.Context) error {
	close(w.started)
	return nil
}

// An API server that still calls the Service of an earlier version trusts the certificate.
func TestWebhookIsCalledByItsFormerName(t *testing.T) {
	w := NewWebhook()
	w.ServiceNamespace = "keelson-system"
	address := &net.TCPAddr{IP: net.IPv4zero, Port: 9443}
	own := []string{"keelson-webhook.keelson-system.svc", "keelson-webhook.keelson-system.svc.cluster.local"}
	if diff := cmp.Diff(own, w.names(address, "")); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append(own, "keelson-webhook.default.svc"), w.names(address, "default")); diff != "" {
		t.Errorf("names with the former one (-want +got):\n%s", diff)
	}
}
