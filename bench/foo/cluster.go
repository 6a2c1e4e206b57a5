package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/install"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// cluster is the control plane that everything is measured on.
type cluster struct {
	dir        string // for what belongs to this run, also logs
	config     *rest.Config
	kubeconfig string
	full       bool
	components map[string]int // pids, by name
	// writers are the clients that create and delete, observer is one that only watches.
	writers  []connection
	observer connection
	stop     func() error
}

// connection is a client with one connection of its own.
type connection struct {
	foos versioned.Interface
	kube kubernetes.Interface
	http *http.Client
}

// startCluster starts a control plane with our definitions in a temporary directory.
func startCluster(ctx context.Context, o options) (_ *cluster, err error) {
	c := &cluster{full: o.Full}
	if c.dir, err = os.MkdirTemp("", "keelson-bench-"); err != nil {
		return nil, err
	}
	opts := controlplane.Options{Dir: c.dir, APIOnly: !o.Full}
	if o.Full {
		opts.Nodes = 1
	}
	cp, stop, err := env.StartControlPlane(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.stop, c.config, c.kubeconfig = stop, cp.Config(), cp.Kubeconfig()
	if err := c.prepare(ctx, cp, o.Connections); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) prepare(ctx context.Context, cp *controlplane.ControlPlane, connections int) error {
	if err := cp.Settle(ctx); err != nil {
		return err
	}
	report, err := controlplane.Inspect(ctx, c.dir)
	if err != nil {
		return err
	}
	c.components = map[string]int{}
	for _, component := range report.Components {
		c.components[component.Name] = component.PID
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	if err := install.CRDs(ctx, c.config, definitions); err != nil {
		return err
	}
	if c.observer, err = connect(c.config); err != nil {
		return err
	}
	for range connections {
		writer, err := connect(c.config)
		if err != nil {
			return err
		}
		c.writers = append(c.writers, writer)
	}
	return nil
}

// connect returns a client that shares its connection with no other. Clients of the same configuration would share
// one. Objects that Kubernetes knows itself go as protobuf, which is the fastest for both sides.
func connect(config *rest.Config) (connection, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return connection{}, err
	}
	c := connection{http: client}
	if c.foos, err = versioned.NewForConfigAndClient(config, client); err != nil {
		return connection{}, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c.kube, err = kubernetes.NewForConfigAndClient(config, client)
	return c, err
}

// each calls do for 0 to n-1, with as many calls at a time as there are writers, until one fails.
func (c *cluster) each(ctx context.Context, n int, do func(ctx context.Context, writer connection, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for _, writer := range c.writers {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, writer, i); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// namespace creates a namespace in which pods can be created.
func (c *cluster) namespace(ctx context.Context) (string, error) {
	kube := c.observer.kube.CoreV1()
	created, err := kube.Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	if !c.full {
		return created.Name, nil
	}
	err = until(ctx, func(ctx context.Context) error {
		_, err := kube.ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return created.Name, err
}

// empty deletes all Foos and Deployments of a namespace, and waits until what belongs to them is gone. No controller
// of Foos may run.
func (c *cluster) empty(ctx context.Context, namespace string) error {
	foos, err := c.observer.foos.SamplecontrollerV1alpha1().Foos(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	err = c.each(ctx, len(foos.Items), func(ctx context.Context, writer connection, i int) error {
		return writer.foos.SamplecontrollerV1alpha1().Foos(namespace).Delete(ctx, foos.Items[i].Name, metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	if c.full {
		return c.awaitCollection(ctx, namespace)
	}
	deployments, err := c.observer.kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return c.each(ctx, len(deployments.Items), func(ctx context.Context, writer connection, i int) error {
		return writer.kube.AppsV1().Deployments(namespace).Delete(ctx, deployments.Items[i].Name, metav1.DeleteOptions{})
	})
}

// awaitCollection deletes Deployments and waits until Kubernetes has cleaned up after them: else it would do so while
// the next burst is measured.
func (c *cluster) awaitCollection(ctx context.Context, namespace string) error {
	err := c.observer.kube.AppsV1().Deployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error {
		one := metav1.ListOptions{Limit: 1}
		deployments, err := c.observer.kube.AppsV1().Deployments(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		sets, err := c.observer.kube.AppsV1().ReplicaSets(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		pods, err := c.observer.kube.CoreV1().Pods(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		if len(deployments.Items)+len(sets.Items)+len(pods.Items) > 0 {
			return errors.New("there are Deployments, ReplicaSets or Pods left")
		}
		return nil
	})
}

// until asks again and again until ask returns no error, for at most five minutes.
func until(ctx context.Context, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := ask(ctx); err != nil {
			last = err
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// scrape reads the metrics of kube-apiserver.
func (c *cluster) scrape(ctx context.Context) (measure.Metrics, error) {
	return measure.Scrape(ctx, c.observer.http, c.config.Host+"/metrics")
}
