// Package cluster gives benchmarks a control plane of their own, and clients whose number of connections is known.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
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

// Cluster is the control plane that everything is measured on.
type Cluster struct {
	// Dir is for what belongs to this run, also logs. It is removed at the end.
	Dir string
	// Config is that of an administrator, Kubeconfig the path of a file with the same.
	Config     *rest.Config
	Kubeconfig string
	// Full says that Kubernetes' own controllers run, a scheduler, and a node.
	Full bool
	// Components are the processes of the control plane, by name.
	Components measure.Processes
	// Writers are the clients that create and delete, Observer is one that only watches.
	Writers  []Connection
	Observer Connection
	// Stop ends everything.
	Stop func() error
}

// Connection is a client with one connection of its own.
type Connection struct {
	Keelson versioned.Interface
	Kube    kubernetes.Interface
	HTTP    *http.Client
}

// Start starts a control plane with our definitions in a temporary directory, and so many writers. Unless it is to be
// full, it is etcd and kube-apiserver alone.
func Start(ctx context.Context, full bool, writers int) (*Cluster, error) {
	opts := controlplane.Options{APIOnly: !full}
	if full {
		opts.Nodes = 1
	}
	return StartWith(ctx, opts, writers)
}

// StartWith does the same with a control plane as the options ask for, but for the directory: with other nodes, for
// example.
func StartWith(ctx context.Context, opts controlplane.Options, writers int) (_ *Cluster, err error) {
	c := &Cluster{Full: !opts.APIOnly}
	if c.Dir, err = os.MkdirTemp("", "keelson-bench-"); err != nil {
		return nil, err
	}
	opts.Dir = c.Dir
	cp, stop, err := env.StartControlPlane(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.Stop, c.Config, c.Kubeconfig = stop, cp.Config(), cp.Kubeconfig()
	if err := c.prepare(ctx, cp, writers); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) prepare(ctx context.Context, cp *controlplane.ControlPlane, writers int) error {
	if err := cp.Settle(ctx); err != nil {
		return err
	}
	report, err := controlplane.Inspect(ctx, c.Dir)
	if err != nil {
		return err
	}
	c.Components = measure.Processes{}
	for _, component := range report.Components {
		c.Components[component.Name] = component.PID
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	if err := install.CRDs(ctx, c.Config, definitions); err != nil {
		return err
	}
	if c.Observer, err = Connect(c.Config); err != nil {
		return err
	}
	for range writers {
		writer, err := Connect(c.Config)
		if err != nil {
			return err
		}
		c.Writers = append(c.Writers, writer)
	}
	return nil
}

// Connect returns a client that shares its connection with no other. Clients of the same configuration would share
// one. Objects that Kubernetes knows itself go as protobuf, which is the fastest for both sides.
func Connect(config *rest.Config) (Connection, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Connection{}, err
	}
	c := Connection{HTTP: client}
	if c.Keelson, err = versioned.NewForConfigAndClient(config, client); err != nil {
		return Connection{}, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c.Kube, err = kubernetes.NewForConfigAndClient(config, client)
	return c, err
}

// Each calls do for 0 to n-1, with as many calls at a time as there are writers, until one fails.
func (c *Cluster) Each(ctx context.Context, n int, do func(ctx context.Context, writer Connection, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for _, writer := range c.Writers {
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

// Namespace creates a namespace in which pods can be created.
func (c *Cluster) Namespace(ctx context.Context) (string, error) {
	kube := c.Observer.Kube.CoreV1()
	created, err := kube.Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	if !c.Full {
		return created.Name, nil
	}
	err = Until(ctx, func(ctx context.Context) error {
		_, err := kube.ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A container gets it beside its token, and a real node waits for it.
		_, err = kube.ConfigMaps(created.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	return created.Name, err
}

// Until asks again and again until ask returns no error, for at most five minutes.
func Until(ctx context.Context, ask func(context.Context) error) error {
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

// Version asks for the version of Kubernetes.
func (c *Cluster) Version() (string, error) {
	version, err := c.Observer.Kube.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}
	return version.GitVersion, nil
}

// Scrape reads the metrics of kube-apiserver.
func (c *Cluster) Scrape(ctx context.Context) (measure.Metrics, error) {
	return measure.Scrape(ctx, c.Observer.HTTP, c.Config.Host+"/metrics")
}

// Served returns how many requests kube-apiserver has served about some resources since it was started, by
// "VERB resource" or "VERB resource/subresource". Those that it has refused, which cost as much, have the code of the
// answer behind.
func (c *Cluster) Served(ctx context.Context, resources ...string) (map[string]float64, error) {
	metrics, err := c.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	return served(metrics, resources), nil
}

func served(metrics measure.Metrics, resources []string) map[string]float64 {
	all := map[string]float64{}
	for what, n := range metrics.By("apiserver_request_total", "code", "verb", "resource", "subresource") {
		parts := strings.Fields(what) // the last is empty without a subresource
		if len(parts) < 3 || !slices.Contains(resources, parts[2]) {
			continue
		}
		name := parts[1] + " " + strings.Join(parts[2:], "/")
		if code := parts[0]; code >= "400" {
			name += " (" + code + ")"
		}
		all[name] += n
	}
	return all
}
