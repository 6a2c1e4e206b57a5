package rehearsal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Response is what the API of the fork says about a list of a resource, or about an object of it.
type Response struct {
	Resource Resource
	// Object is the namespace and name; empty for the list.
	Object string
	// Err is the refusal.
	Err error
	// Warnings are those of the API. Of an object they are without those of its list.
	Warnings []string
}

// Checked is the result of Check.
type Checked struct {
	*Inventory
	// Responses are those with an error or a warning.
	Responses []Response
	// Updated is the number of objects that were written as a dry run.
	Updated int
}

const (
	// writers of dry runs at the same time, fewer than the API server allows for one user.
	concurrency = 8
	// conflictRetries is the number of attempts for an object that controllers change meanwhile.
	conflictRetries = 5
	// requestTimeout limits one request.
	requestTimeout = time.Minute
	fieldManager   = "keelson-rehearsal"
)

// Check lists all objects of a fork in all versions, and writes each one unchanged as a dry run. It first deletes the configurations of
// webhooks in the fork, whose programs do not run there, so that the API itself checks the objects.
func Check(ctx context.Context, config *rest.Config) (*Checked, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, requestTimeout // the API server has priority and fairness
	config.WarningHandler, config.WarningHandlerWithContext = nil, collector{}
	inventory, err := discover(ctx, config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := removeWebhooks(ctx, client); err != nil {
		return nil, err
	}
	checked := &Checked{Inventory: inventory}
	for _, resource := range inventory.Resources {
		if err := checked.resource(ctx, client, resource); err != nil {
			return nil, err
		}
	}
	return checked, nil
}

// removeWebhooks deletes the configurations of all webhooks.
func removeWebhooks(ctx context.Context, client dynamic.Interface) error {
	for _, resource := range webhookConfigurations {
		if err := client.Resource(resource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the webhooks of the fork: %w", err)
		}
	}
	return nil
}

// resource checks the objects of a resource in one version. They are written in the preferred version only.
func (c *Checked) resource(ctx context.Context, client dynamic.Interface, resource Resource) error {
	options := metav1.ListOptions{Limit: pageSize}
	for first := true; ; first = false {
		listCtx, warnings := collect(ctx)
		page, err := client.Resource(resource.GroupVersionResource).List(listCtx, options)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || first && len(warnings.all()) > 0 {
			c.Responses = append(c.Responses, Response{Resource: resource, Err: err, Warnings: warnings.all()})
		}
		if err != nil {
			return nil
		}
		if resource.Preferred {
			c.Objects[resource.GroupResource()] += len(page.Items)
			if resource.Updatable {
				if err := c.update(ctx, client, resource, page.Items, warnings.all()); err != nil {
					return err
				}
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// update writes objects as a dry run.
func (c *Checked) update(ctx context.Context, client dynamic.Interface, resource Resource, objects []unstructured.Unstructured, known []string) error {
	responses := make([]Response, len(objects))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range objects {
		group.Go(func() error {
			object := &objects[i]
			updateCtx, warnings := collect(groupCtx)
			err := dryRun(updateCtx, client, resource, object)
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			if apierrors.IsNotFound(err) {
				err = nil // a controller has deleted it meanwhile
			}
			name := object.GetName()
			if object.GetNamespace() != "" {
				name = object.GetNamespace() + "/" + name
			}
			own := slices.DeleteFunc(warnings.all(), func(text string) bool { return slices.Contains(known, text) })
			responses[i] = Response{Resource: resource, Object: name, Err: err, Warnings: own}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.Updated += len(objects)
	for _, response := range responses {
		if response.Err != nil || len(response.Warnings) > 0 {
			c.Responses = append(c.Responses, response)
		}
	}
	return nil
}

// dryRun writes an object unchanged as a dry run. An object that controllers change meanwhile is read again.
func dryRun(ctx context.Context, client dynamic.Interface, resource Resource, object *unstructured.Unstructured) error {
	objects := client.Resource(resource.GroupVersionResource).Namespace(object.GetNamespace())
	for attempt := 0; ; attempt++ {
		_, err := objects.Update(ctx, object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
		if !apierrors.IsConflict(err) || attempt == conflictRetries {
			return err
		}
		if object, err = objects.Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// collector collects the warnings of requests in their contexts.
type collector struct{}

type collectorKey struct{}

type warnings struct {
	mu    sync.Mutex
	texts []string
}

// collect returns a context that collects the warnings of its requests.
func collect(ctx context.Context) (context.Context, *warnings) {
	found := &warnings{}
	return context.WithValue(ctx, collectorKey{}, found), found
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. 299 is the code of all warnings of an API server.
func (collector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	found, ok := ctx.Value(collectorKey{}).(*warnings)
	if !ok || code != 299 || text == "" {
		return
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if !slices.Contains(found.texts, text) {
		found.texts = append(found.texts, text)
	}
}
