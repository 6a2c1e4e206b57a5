// Command client-go shows how a program works with VirtualMachines: it creates one
// through the generated clientset, follows it with a generated informer until it is
// ready, lists what is there through the lister, and deletes it again.
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/client/informers/externalversions"
	listers "github.com/keelson-dev/keelson/client/listers/virtualmachine/v1alpha1"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file`; without it, what kubectl would use")
	namespace := flag.String("namespace", metav1.NamespaceDefault, "namespace to work in")
	timeout := flag.Duration("timeout", 5*time.Minute, "how long to wait for the machine to become ready")
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

// run creates a machine, waits until it is ready, lists all machines of the namespace, and
// deletes the one that it created, also when it did not become ready.
func run(ctx context.Context, client versioned.Interface, namespace string, out io.Writer) (err error) {
	machines := client.CloudnativeV1alpha1().VirtualMachines(namespace)
	machine, err := machines.Create(ctx, &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "client-go-example"},
		Spec:       v1alpha1.VirtualMachineSpec{Resource: v1alpha1.Resources{Memory: resource.MustParse("256Mi")}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a VirtualMachine: %w", err)
	}
	fmt.Fprintf(out, "created VirtualMachine %s/%s\n", machine.Namespace, machine.Name)
	defer func() {
		// ctx may have ended by now; what we made must go all the same.
		if deleteErr := machines.Delete(context.WithoutCancel(ctx), machine.Name, metav1.DeleteOptions{}); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete VirtualMachine %s/%s: %w", machine.Namespace, machine.Name, deleteErr))
			return
		}
		fmt.Fprintf(out, "deleted VirtualMachine %s/%s\n", machine.Namespace, machine.Name)
	}()

	// An informer lists once, then watches. A factory shares one between everybody in
	// the program who asks for the same kind.
	factory := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithNamespace(namespace))
	informer := factory.Cloudnative().V1alpha1().VirtualMachines()
	changed, err := follow(informer.Informer())
	if err != nil {
		return fmt.Errorf("follow VirtualMachines: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	defer factory.Shutdown() // returns when the informers have stopped, so stop comes first
	defer stop()

	ready, err := waitReady(ctx, informer.Lister().VirtualMachines(namespace), machine.Name, changed)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ready: %s\n", meta.FindStatusCondition(ready.Status.Conditions, v1alpha1.ConditionReady).Reason)

	// A lister reads what the informer has seen and asks nobody. What it returns is
	// shared: make a DeepCopy before changing it.
	all, err := informer.Lister().VirtualMachines(namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list VirtualMachines: %w", err)
	}
	fmt.Fprintf(out, "VirtualMachines in namespace %s: %d\n", namespace, len(all))
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

// waitReady returns the machine as soon as the lister has it ready, or an error when ctx
// ends before that. It decides by the state and not by what happened to get there, so
// an event that is missed, merged or seen twice does no harm.
func waitReady(ctx context.Context, machines listers.VirtualMachineNamespaceLister, name string, changed <-chan struct{}) (*v1alpha1.VirtualMachine, error) {
	for {
		machine, err := machines.Get(name)
		switch {
		case err == nil && isReady(machine):
			return machine, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get VirtualMachine %s from the lister: %w", name, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for VirtualMachine %s to become ready (%s): %w", name, whyNot(machine), ctx.Err())
		}
	}
}

// isReady reports whether the controller calls the machine ready, and means the newest
// version of its spec.
func isReady(machine *v1alpha1.VirtualMachine) bool {
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == machine.Generation
}

// whyNot says what the controller last said about a machine; nil is one not seen yet.
func whyNot(machine *v1alpha1.VirtualMachine) string {
	if machine != nil {
		if condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
			return condition.Reason + ": " + condition.Message
		}
	}
	return "no controller has reported on it yet; is the manager running?"
}
