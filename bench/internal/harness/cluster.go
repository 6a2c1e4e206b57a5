package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/install"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// PollInterval is how often the API is asked about what is waited for outside of measurements.
const PollInterval = 100 * time.Millisecond

// Cluster is the control plane that everything is measured on, with our definitions.
type Cluster struct {
	// Dir holds the data and logs of this run. It is removed at the end.
	Dir string
	// Kubeconfig is the path of that of an administrator.
	Kubeconfig string
	// Keelson is the program under test.
	Keelson string
	// Writers are the clients that create and delete; Observer only watches.
	Writers  []Connection
	Observer Connection
	// Counted are the resources whose writes Served counts, Uncounted the writes of the benchmark itself, such as "POST foos".
	Counted, Uncounted []string
	// Stop ends everything.
	Stop func() error
}

// Connection is a client with a connection of its own.
type Connection struct {
	Keelson versioned.Interface
	Kube    kubernetes.Interface
}

// StartCluster starts etcd without fsync and kube-apiserver in a temporary directory, with clients. It notes what is measured.
func (r *Run) StartCluster(ctx context.Context, writers int) (_ *Cluster, err error) {
	c := &Cluster{}
	for _, name := range []string{"keelson-kube", "keelson"} {
		if c.Keelson, err = env.Binary(name); err != nil {
			return nil, err
		}
		version, err := Output(ctx, c.Keelson, "version")
		if err != nil {
			return nil, err
		}
		r.Note("%s: %s", name, version)
	}
	r.Say("Starting a control plane")
	if c.Dir, err = os.MkdirTemp("", "keelson-bench-"); err != nil {
		return nil, err
	}
	cp, stop, err := env.StartControlPlane(ctx, controlplane.Options{APIOnly: true, Dir: c.Dir})
	if err != nil {
		return nil, err
	}
	c.Stop, c.Kubeconfig = stop, cp.Kubeconfig()
	if err := c.prepare(ctx, cp, writers); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) prepare(ctx context.Context, cp *controlplane.ControlPlane, writers int) error {
	if err := cp.Settle(ctx); err != nil {
		return err
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	if err := install.CRDs(ctx, cp.Config(), definitions); err != nil {
		return err
	}
	return c.connectAll(cp.Config(), writers)
}

// Connect returns a Cluster that is there already.
func Connect(kubeconfig string, writers int) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: kubeconfig}
	return c, c.connectAll(config, writers)
}

// connectAll makes the clients.
func (c *Cluster) connectAll(config *rest.Config, writers int) (err error) {
	if c.Observer, err = connect(config); err != nil {
		return err
	}
	for range writers {
		writer, err := connect(config)
		if err != nil {
			return err
		}
		c.Writers = append(c.Writers, writer)
	}
	return nil
}

// connect returns a client that shares its connection with no other, as clients of the same configuration would. Kubernetes'
// own objects go as protobuf, the fastest encoding for both sides.
func connect(config *rest.Config) (Connection, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Connection{}, err
	}
	var c Connection
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

// Namespace creates a namespace.
func (c *Cluster) Namespace(ctx context.Context) (string, error) {
	created, err := c.Observer.Kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	return created.Name, nil
}
