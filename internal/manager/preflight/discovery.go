package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

const (
	// discoveryDelay is the time that the API server may take to serve the resource of a new CRD, so that a manager can start
	// right after the CRDs are applied.
	discoveryDelay = 3 * time.Second
	// discoveryInterval is the polling interval during that time.
	discoveryInterval = 200 * time.Millisecond
)

// resources has the resources that an API server serves, by version, and whether they are namespaced.
type resources map[schema.GroupVersionResource]bool

// isClusterScoped reports whether a resource is served as cluster-scoped. A resource that is not served counts as namespaced,
// because nearly all are.
func (r resources) isClusterScoped(resource schema.GroupResource) bool {
	for served, namespaced := range r {
		if served.GroupResource() == resource {
			return !namespaced
		}
	}
	return false
}

// discover queries the API once. It omits groups whose aggregated API server does not respond.
func (c *checker) discover(ctx context.Context) (resources, error) {
	_, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	served := resources{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("the API server %s serves a group with an invalid name: %w", c.server, err)
		}
		for _, resource := range list.APIResources {
			served[version.WithResource(resource.Name)] = resource.Namespaced
		}
	}
	return served, nil
}

// awaitServer returns the resources of the API server as soon as it responds. A permanent error is returned at
// once.
func (c *checker) awaitServer(ctx context.Context, timeout time.Duration) (resources, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no response within preflight.timeout: %v", timeout))
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 100, Cap: 5 * time.Second}
	var last error
	for attempt := 1; ; attempt++ {
		served, err := c.discover(ctx)
		if err == nil {
			if attempt > 1 {
				c.log.Info("The API server answers", "server", c.server)
			}
			return served, nil
		}
		if ctx.Err() == nil && !isTransient(err) {
			return nil, c.refused(err)
		}
		if attempt == 1 {
			c.log.Info("The API server does not answer, waiting for it", "server", c.server, "reason", err.Error(), "timeout", timeout)
		} else {
			c.log.V(1).Info("The API server still does not answer", "server", c.server, "reason", err.Error())
		}
		if ctx.Err() == nil || last == nil {
			// After the timeout, every request fails for that reason.
			last = err
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return nil, fmt.Errorf("the API server %s does not answer: %w (%w); is the address right, and is it running?",
				c.server, last, context.Cause(ctx))
		}
	}
}

// refused explains a permanent error of the API server.
func (c *checker) refused(err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server %s does not accept the credentials of the kubeconfig or service account: %w", c.server, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server %s does not allow this user to discover its resources: bind the ClusterRole system:discovery: %w", c.server, err)
	default:
		return fmt.Errorf("discover the resources of the API server %s: %w", c.server, err)
	}
}

// isTransient reports whether a retry may succeed: the server is starting, busy or unreachable.
func isTransient(err error) bool {
	var (
		operation *net.OpError
		dns       *net.DNSError
		request   *url.Error
	)
	switch {
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsTimeout(err),
		utilnet.IsProbableEOF(err), errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return true
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsTimeout(err), apierrors.IsInternalError(err):
		return true
	case errors.As(err, &dns):
		return true
	case errors.As(err, &operation):
		// An error in dialling is one of the network; a later one, in TLS, is not.
		return operation.Op == "dial" || operation.Op == "read"
	case errors.As(err, &request):
		return request.Timeout()
	default:
		return false
	}
}

// awaitResources returns the resources of the controllers that are still not served after discoveryDelay.
func (c *checker) awaitResources(ctx context.Context, needed []Resource, served resources) (resources, []Resource, error) {
	deadline := time.Now().Add(discoveryDelay)
	for {
		missing := unservedOf(needed, served)
		if len(missing) == 0 || time.Now().After(deadline) {
			return served, missing, nil
		}
		select {
		case <-time.After(discoveryInterval):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		var err error
		if served, err = c.discover(ctx); err != nil {
			return nil, nil, c.refused(err)
		}
	}
}

// Resource is a resource that a controller needs.
type Resource struct {
	Controller string
	schema.GroupVersionResource
}

func unservedOf(needed []Resource, served resources) []Resource {
	return slices.DeleteFunc(slices.Clone(needed), func(r Resource) bool {
		_, ok := served[r.GroupVersionResource]
		return ok
	})
}
