// Package preflight checks, before the controllers of a manager start, that the API server answers, serves their resources and
// grants their permissions. It also generates the roles that grant them.
package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// preflightRequestTimeout limits each request of the preflight.
	preflightRequestTimeout = 10 * time.Second
	// reviewsAtOnce limits the concurrent access reviews.
	reviewsAtOnce = 16
)

// checker sends the requests of a preflight.
type checker struct {
	server         string
	log            logr.Logger
	discovery      *discovery.DiscoveryClient
	authorization  authorizationv1client.AuthorizationV1Interface
	authentication authenticationv1client.AuthenticationV1Interface
	namespaces     corev1client.NamespaceInterface
}

// Options are the requirements of a manager.
type Options struct {
	// Timeout limits the wait for the API server to respond.
	Timeout time.Duration
	Log     logr.Logger
	// Resources must be served.
	Resources []Resource
	// Requirements are the permissions that the user must have.
	Requirements []Requirement
	// LeaseNamespace is checked for a Role in place of the required ClusterRole, a mistake that the error then
	// explains.
	LeaseNamespace string
	// Home is a namespace that Check creates if it does not exist. Nil: none.
	Home *corev1.Namespace
}

// Check checks that the API server of cfg responds, serves the resources and grants the required permissions. An *Error lists
// what is missing.
//
// Without it, the only symptom would be endless "forbidden" errors of the first watch.
func Check(ctx context.Context, cfg *rest.Config, o Options) error {
	started := time.Now()
	c, err := newChecker(cfg, o.Log)
	if err != nil {
		return err
	}
	served, err := c.awaitServer(ctx, o.Timeout)
	if err != nil {
		return err
	}
	served, unserved, err := c.awaitResources(ctx, o.Resources, served)
	if err != nil {
		return err
	}
	shortages, reviewed, err := c.shortages(ctx, o.Requirements, served.isClusterScoped)
	if err != nil {
		return err
	}
	if len(unserved) > 0 || len(shortages) > 0 {
		return c.explain(ctx, unserved, shortages, served.isClusterScoped, o)
	}
	if o.Home != nil {
		if err := c.createNamespace(ctx, o.Home); err != nil {
			return err
		}
	}
	o.Log.V(1).Info("Preflight passed", "permissions", reviewed, "duration", time.Since(started))
	return nil
}

func newChecker(cfg *rest.Config, log logr.Logger) (*checker, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = preflightRequestTimeout
	cfg.QPS = -1 // its rate limiter would hide why the server does not answer, shortly before the timeout
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the client for %s: %w", cfg.Host, err)
	}
	c := &checker{server: cfg.Host, log: log}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient); err != nil {
		return nil, fmt.Errorf("build the discovery client for %s: %w", cfg.Host, err)
	}
	if c.authorization, err = authorizationv1client.NewForConfigAndClient(cfg, httpClient); err != nil {
		return nil, fmt.Errorf("build the authorization client for %s: %w", cfg.Host, err)
	}
	if c.authentication, err = authenticationv1client.NewForConfigAndClient(cfg, httpClient); err != nil {
		return nil, fmt.Errorf("build the authentication client for %s: %w", cfg.Host, err)
	}
	core, err := corev1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build the client of namespaces for %s: %w", cfg.Host, err)
	}
	c.namespaces = core.Namespaces()
	return c, nil
}

// shortages reviews all permissions. It returns the requirements with missing permissions, and the number of
// reviews.
func (c *checker) shortages(ctx context.Context, needed []Requirement, clusterScoped isClusterScoped) ([]shortage, int, error) {
	var all []Permission
	for _, r := range needed {
		all = append(all, r.Permissions(clusterScoped)...)
	}
	allowed, err := c.review(ctx, all)
	if err != nil {
		return nil, 0, err
	}
	var short []shortage
	for _, r := range needed {
		var missing []Permission
		for _, p := range r.Permissions(clusterScoped) {
			if !allowed[p] {
				missing = append(missing, p)
			}
		}
		if len(missing) > 0 {
			short = append(short, shortage{Requirement: r, missing: missing})
		}
	}
	return short, len(allowed), nil
}

// review asks the API server which of the permissions this user has. Permissions that several controllers need
// are reviewed once.
func (c *checker) review(ctx context.Context, permissions []Permission) (map[Permission]bool, error) {
	allowed := make(map[Permission]bool, len(permissions))
	for _, p := range permissions {
		allowed[p] = false
	}
	distinct := make([]Permission, 0, len(allowed))
	for p := range allowed {
		distinct = append(distinct, p)
	}
	answers := make([]bool, len(distinct))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, p := range distinct {
		group.Go(func() error {
			answer, err := c.authorization.SelfSubjectAccessReviews().Create(ctx, p.review(), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask the API server %s whether this user may %v: %w", c.server, p, err)
			}
			answers[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, p := range distinct {
		allowed[p] = answers[i]
	}
	return allowed, nil
}

// review returns the access review for p.
func (p Permission) review() *authorizationv1.SelfSubjectAccessReview {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if p.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: p.Path, Verb: p.Verb}
		return review
	}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: p.Namespace, Verb: p.Verb, Group: p.Group,
		Resource: p.Resource, Subresource: p.Subresource, Name: p.Name,
	}
	return review
}

// explain returns the error of a failed preflight. It mentions the namespace of the Lease if that grants
// everything that is missing in the whole cluster.
func (c *checker) explain(ctx context.Context, unserved []Resource, short []shortage, clusterScoped isClusterScoped, o Options) error {
	result := &Error{server: c.server, unserved: unserved, shortages: short}
	if len(short) == 0 {
		return result
	}
	self, err := c.authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("permissions are missing; ask the API server %s for the name of this user: %w", c.server, err)
	}
	result.user = self.Status.UserInfo.Username
	if result.grantedIn, err = c.grantedOnlyIn(ctx, short, clusterScoped, o.LeaseNamespace); err != nil {
		return err
	}
	result.Manifest, err = manifest(withHome(o.Home, grants(short, result.user, clusterScoped)))
	if err != nil {
		return err
	}
	return result
}

// grantedOnlyIn returns home if it grants everything that is missing in the whole cluster, which indicates a
// Role in place of a ClusterRole. Otherwise it returns "".
func (c *checker) grantedOnlyIn(ctx context.Context, short []shortage, clusterScoped isClusterScoped, home string) (string, error) {
	var there []Permission
	for _, s := range short {
		for _, p := range s.missing {
			if p.Namespace == "" && p.Path == "" && !clusterScoped(schema.GroupResource{Group: p.Group, Resource: p.Resource}) {
				p.Namespace = home
				there = append(there, p)
			}
		}
	}
	if len(there) == 0 {
		return "", nil
	}
	allowed, err := c.review(ctx, there)
	if err != nil {
		return "", err
	}
	for _, ok := range allowed {
		if !ok {
			return "", nil
		}
	}
	return home, nil
}
