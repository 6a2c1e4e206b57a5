// Command client-go shows how a program works with Foos: it creates one through the
// generated clientset, follows it with a generated informer until it is ready, lists
// what is there through the lister, and deletes it again.
//
//	go run ./examples/client-go --kubeconfig FILE
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/client/informers/externalversions"
	listers "github.com/keelson-dev/keelson/client/listers/samplecontroller/v1alpha1"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file`; without it, what kubectl would use")
	namespace := flag.String("namespace", metav1.NamespaceDefault, "namespace to work in")
	timeout := flag.Duration("timeout", time.Minute, "how long to wait for the Foo to become ready")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()

	client, err := newClient(*kubeconfig)
	if err == nil {
		err = run(ctx, client, *namespace, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// newClient returns a clientset for the cluster that the kubeconfig names.
func newClient(kubeconfig string) (versioned.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	return versioned.NewForConfig(config)
}

// run creates a Foo, waits until it is ready, lists all Foos of the namespace, and
// deletes the one that it created, also when it did not become ready.
func run(ctx context.Context, client versioned.Interface, namespace string, out io.Writer) (err error) {
	foos := client.SamplecontrollerV1alpha1().Foos(namespace)
	replicas := int32(2)
	foo, err := foos.Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "client-go-example"},
		Spec:       v1alpha1.FooSpec{DeploymentName: "client-go-example", Replicas: &replicas},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a Foo: %w", err)
	}
	fmt.Fprintf(out, "created Foo %s/%s\n", foo.Namespace, foo.Name)
	defer func() {
		// ctx may have ended by now; what we made must go all the same.
		if deleteErr := foos.Delete(context.WithoutCancel(ctx), foo.Name, metav1.DeleteOptions{}); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete Foo %s/%s: %w", foo.Namespace, foo.Name, deleteErr))
			return
		}
		fmt.Fprintf(out, "deleted Foo %s/%s\n", foo.Namespace, foo.Name)
	}()

	// An informer lists once, then watches. A factory shares one between everybody in
	// the program who asks for the same kind.
	factory := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithNamespace(namespace))
	informer := factory.Samplecontroller().V1alpha1().Foos()
	changed, err := follow(informer.Informer())
	if err != nil {
		return fmt.Errorf("follow Foos: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	defer factory.Shutdown() // returns when the informers have stopped, so stop comes first
	defer stop()

	ready, err := waitReady(ctx, informer.Lister().Foos(namespace), foo.Name, changed)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ready: %d of %d replicas of Deployment %s are available\n",
		ready.Status.AvailableReplicas, *ready.Spec.Replicas, ready.Spec.DeploymentName)

	// A lister reads what the informer has seen and asks nobody. What it returns is
	// shared: make a DeepCopy before changing it.
	all, err := informer.Lister().Foos(namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Foos: %w", err)
	}
	fmt.Fprintf(out, "Foos in namespace %s: %d\n", namespace, len(all))
	return nil
}

// follow returns a channel that says that something has changed since it was read
// last. It must be called before the informer is started.
func follow(informer cache.SharedInformer) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // it says so already
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	})
	return changed, err
}

// waitReady returns the Foo as soon as the lister has it ready, or an error when ctx
// ends before that. It decides by the state and not by what happened to get there, so
// an event that is missed, merged or seen twice does no harm.
func waitReady(ctx context.Context, foos listers.FooNamespaceLister, name string, changed <-chan struct{}) (*v1alpha1.Foo, error) {
	for {
		foo, err := foos.Get(name)
		switch {
		case err == nil && isReady(foo):
			return foo, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get Foo %s from the lister: %w", name, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for Foo %s to become ready (%s): %w", name, whyNot(foo), ctx.Err())
		}
	}
}

// isReady reports whether the controller calls the Foo ready, and means the newest
// version of its spec.
func isReady(foo *v1alpha1.Foo) bool {
	condition := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == foo.Generation
}

// whyNot says what the controller last said about a Foo; nil is one not seen yet.
func whyNot(foo *v1alpha1.Foo) string {
	if foo != nil {
		if condition := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
			return condition.Reason + ": " + condition.Message
		}
	}
	return "no controller has reported on it yet; is the manager running?"
}
