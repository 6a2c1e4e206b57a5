package top

import (
	"context"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// start runs the screen on a terminal, and returns what waits for its end.
func start(t *testing.T, term *terminal, config *rest.Config, namespace string) (client.Client, func()) {
	t.Helper()
	api := &target.API{Config: config, Name: "test", Namespace: namespace}
	c, err := api.Client(vmv1alpha1.AddToScheme, clusterv1alpha1.AddToScheme, stablev1.AddToScheme, foov1alpha1.AddToScheme, corev1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{client: c, api: api, namespace: namespace, loads: loads{}}
	s.place = "test, namespace " + namespace
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, term.tty, term.tty) }()
	t.Cleanup(cancel)
	return c, func() {
		t.Helper()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatalf("it has not ended: %q", term.written())
		}
	}
}

func newFoo(namespace string) *foov1alpha1.Foo {
	return &foov1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}, Spec: foov1alpha1.FooSpec{DeploymentName: "app"},
	}
}

// A user sees an object that appears, and deletes it.
func TestScreen(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "1")
	namespace := env.Namespace(t)
	term := newTerminal(t, 80, 24)
	c, ended := start(t, term, env.Config(t), namespace)
	term.await(t, "None")
	foo := newFoo(namespace)
	if err := c.Create(t.Context(), foo); err != nil {
		t.Fatal(err)
	}
	term.await(t, "app    Pending")
	term.press(t, "\t\t\t") // the section of Foos
	term.press(t, "d")
	term.await(t, "Delete foo "+namespace+"/app?")
	term.press(t, "y")
	term.await(t, "is being deleted")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foo), foo); !apierrors.IsNotFound(err) {
		t.Errorf("the Foo is there: %v", err)
	}
	term.press(t, "q")
	ended()
	term.checkLeft(t)
	if colour := regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-7]|38|4[0-7]|48|9[0-7])\b[0-9;]*m`).FindString(term.written()); colour != "" {
		t.Errorf("a colour with NO_COLOR: %q", colour)
	}
}

// A user without permissions sees sentences. Ctrl-C ends the screen.
func TestScreenOfAnotherUser(t *testing.T) {
	t.Setenv("TERM", "xterm")
	namespace := env.Namespace(t)
	config := rest.CopyConfig(env.Config(t))
	config.Impersonate.UserName = "jane"
	term := newTerminal(t, 80, 24)
	_, ended := start(t, term, config, namespace)
	for _, what := range []string{"virtualmachines", "clusters", "crontabs", "foos", "events"} {
		term.await(t, "You may not list "+what)
	}
	term.press(t, "\x03")
	ended()
	term.checkLeft(t)
}

// A signal ends the screen, too.
func TestScreenIsCancelled(t *testing.T) {
	t.Setenv("TERM", "xterm")
	namespace := env.Namespace(t)
	term := newTerminal(t, 80, 24)
	api := &target.API{Config: env.Config(t), Name: "test", Namespace: namespace}
	c, err := api.Client(vmv1alpha1.AddToScheme, clusterv1alpha1.AddToScheme, stablev1.AddToScheme, foov1alpha1.AddToScheme, corev1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := &screen{client: c, api: api, namespace: namespace, loads: loads{}}
	go func() { ended <- s.run(ctx, term.tty, term.tty) }()
	term.await(t, "None")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	term.checkLeft(t)
}
