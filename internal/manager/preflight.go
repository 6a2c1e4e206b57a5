package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// preflightRequestTimeout bounds every single request of the preflight.
	preflightRequestTimeout = 10 * time.Second
	// reviewsAtOnce is how many access reviews are under way at the same time.
	reviewsAtOnce = 16
)

// checker asks the API server what a preflight wants to know.
type checker struct {
	server         string
	log            logr.Logger
	discovery      *discovery.DiscoveryClient
	authorization  authorizationv1client.AuthorizationV1Interface
	authentication authenticationv1client.AuthenticationV1Interface
	namespaces     corev1client.NamespaceInterface
}

// preflight checks that the API server answers, serves the resources that the
// selected controllers need, and lets this user do everything they will do. A
// *PreflightError says what is missing.
//
// Without it, all of that would show later as endless "forbidden" lines of whatever
// watches first.
func preflight(ctx context.Context, cfg *rest.Config, o Options, all []Controller) error {
	started := time.Now()
	selected, err := selectControllers(all, o.Controllers)
	if err != nil {
		return err
	}
	needed, err := requirements(o, selected)
	if err != nil {
		return err
	}
	c, err := newChecker(cfg, o.Logger)
	if err != nil {
		return err
	}
	served, err := c.awaitServer(ctx, o.PreflightTimeout)
	if err != nil {
		return err
	}
	served, unserved, err := c.awaitResources(ctx, selected, served)
	if err != nil {
		return err
	}
	shortages, reviewed, err := c.shortages(ctx, needed, served.isClusterScoped)
	if err != nil {
		return err
	}
	if len(unserved) > 0 || len(shortages) > 0 {
		return c.explain(ctx, unserved, shortages, served.isClusterScoped, o)
	}
	if needsHome(o, needed) {
		if err := c.makeHome(ctx); err != nil {
			return err
		}
	}
	o.Logger.V(1).Info("Preflight passed", "permissions", reviewed, "duration", time.Since(started))
	return nil
}

func newChecker(cfg *rest.Config, log logr.Logger) (*checker, error) {
	cfg = clientConfig(cfg)
	cfg.Timeout = preflightRequestTimeout
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

// shortages asks for every permission of every requirement. It returns those
// requirements of which something is missing, and how many permissions it asked for.
func (c *checker) shortages(ctx context.Context, needed []requirement, clusterScoped isClusterScoped) ([]shortage, int, error) {
	var all []permission
	for _, r := range needed {
		all = append(all, r.permissions(clusterScoped)...)
	}
	allowed, err := c.review(ctx, all)
	if err != nil {
		return nil, 0, err
	}
	var short []shortage
	for _, r := range needed {
		var missing []permission
		for _, p := range r.permissions(clusterScoped) {
			if !allowed[p] {
				missing = append(missing, p)
			}
		}
		if len(missing) > 0 {
			short = append(short, shortage{requirement: r, missing: missing})
		}
	}
	return short, len(allowed), nil
}

// review asks the API server which of the permissions this user has. What several
// controllers need is asked once.
func (c *checker) review(ctx context.Context, permissions []permission) (map[permission]bool, error) {
	allowed := make(map[permission]bool, len(permissions))
	for _, p := range permissions {
		allowed[p] = false
	}
	distinct := make([]permission, 0, len(allowed))
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
				return fmt.Errorf("ask the API server %s whether this user may %s %s: %w", c.server, p.verb, p.target(), err)
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

// review is the question whether the user who asks has p.
func (p permission) review() *authorizationv1.SelfSubjectAccessReview {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if p.path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: p.path, Verb: p.verb}
		return review
	}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: p.namespace, Verb: p.verb, Group: p.group,
		Resource: p.resource, Subresource: p.subresource, Name: p.name,
	}
	return review
}

// explain makes the error that ends a preflight. If everything that is missing in the
// whole cluster is granted in the namespace of the Lease, it says so.
func (c *checker) explain(ctx context.Context, unserved []unserved, short []shortage, clusterScoped isClusterScoped, o Options) error {
	result := &PreflightError{server: c.server, unserved: unserved, shortages: short}
	if len(short) == 0 {
		return result
	}
	self, err := c.authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask the API server %s who this user is, to whom permissions are missing: %w", c.server, err)
	}
	result.user = self.Status.UserInfo.Username
	if result.grantedIn, err = c.grantedOnlyIn(ctx, short, clusterScoped, o.LeaderElection.LockNamespace); err != nil {
		return err
	}
	result.Manifest, err = manifest(withHome(o, grants(short, result.user, clusterScoped)))
	if err != nil {
		return err
	}
	return result
}

// grantedOnlyIn returns home if what is missing in the whole cluster is granted there:
// the sign of a Role where a ClusterRole is needed. Else it returns "".
func (c *checker) grantedOnlyIn(ctx context.Context, short []shortage, clusterScoped isClusterScoped, home string) (string, error) {
	var there []permission
	for _, s := range short {
		for _, p := range s.missing {
			if p.namespace == "" && p.path == "" && !clusterScoped(schema.GroupResource{Group: p.group, Resource: p.resource}) {
				p.namespace = home
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
