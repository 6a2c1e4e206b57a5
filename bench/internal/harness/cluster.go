package harness

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/install"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// pollInterval is how often the API is asked about what is waited for outside of measurements.
const pollInterval = 100 * time.Millisecond

// Cluster is the control plane that everything is measured on, with our definitions.
type Cluster struct {
	// Dir holds the data and logs of this run. It is removed at the end.
	Dir string
	// Config is that of an administrator, Kubeconfig the path of a file with the same.
	Config     *rest.Config
	Kubeconfig string
	// PIDs are the processes of the control plane.
	PIDs []int
	// Writers are the clients that create and delete; Observer only watches.
	Writers  []Connection
	Observer Connection
	// Counted are the resources that Served counts, Uncounted the requests of the benchmark itself, such as "POST foos".
	Counted, Uncounted []string
	// Stop ends everything.
	Stop func() error

	hasControllers bool
}

// Connection is a client with a connection of its own.
type Connection struct {
	Keelson versioned.Interface
	Kube    kubernetes.Interface
	HTTP    *http.Client
}

// APIOnly asks for a control plane of etcd and kube-apiserver alone.
var APIOnly = controlplane.Options{APIOnly: true}

// StartCluster starts a control plane in a temporary directory, with clients.
func (r *Run) StartCluster(ctx context.Context, opts controlplane.Options, writers int) (_ *Cluster, err error) {
	r.Say("Starting a control plane")
	c := &Cluster{hasControllers: !opts.APIOnly}
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
	for _, component := range report.Components {
		c.PIDs = append(c.PIDs, component.PID)
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	if err := install.CRDs(ctx, c.Config, definitions); err != nil {
		return err
	}
	if c.Observer, err = connect(c.Config); err != nil {
		return err
	}
	for range writers {
		writer, err := connect(c.Config)
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
	c := Connection{HTTP: client}
	if c.Keelson, err = versioned.NewForConfigAndClient(config, client); err != nil {
		return Connection{}, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c.Kube, err = kubernetes.NewForConfigAndClient(config, client)
	return c, err
}

// NoteVersions notes the versions of what is measured.
func (r *Run) NoteVersions(ctx context.Context, c *Cluster) error {
	keelson, err := r.FindKeelson(ctx)
	if err != nil {
		return err
	}
	version, err := c.Observer.Kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("find the version of Kubernetes: %w", err)
	}
	r.Note("keelson %s, Kubernetes %s, etcd without fsync", keelson, version.GitVersion)
	return nil
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

// Namespace creates a namespace in which Pods can be created.
func (c *Cluster) Namespace(ctx context.Context) (string, error) {
	kube := c.Observer.Kube.CoreV1()
	created, err := kube.Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	if !c.hasControllers {
		return created.Name, nil
	}
	return created.Name, Until(ctx, pollInterval, func() error {
		_, err := kube.ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A container gets it along with its token, and a real node waits for it.
		_, err = kube.ConfigMaps(created.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}
