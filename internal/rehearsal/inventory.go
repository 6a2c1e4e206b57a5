// Package rehearsal tells what an upgrade of a cluster to another Kubernetes version would refuse or warn of. It compares the cluster
// with a fork of it that has the other version, and writes all objects of the fork again as a dry run.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Resource is a resource in one version that has objects.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Preferred is true for one version of the resource.
	Preferred bool
	// Updatable is false if objects cannot be changed.
	Updatable bool
}

// Use is how objects use a version of a resource.
type Use struct {
	// Objects is the number of objects that were last written in this version.
	Objects int
	// Managers are the field managers that wrote them, without those of Kubernetes, which is upgraded, too.
	Managers []string
}

// Webhook is a webhook of the cluster that is called for objects.
type Webhook struct {
	// Kind and Configuration identify the object, Name the webhook in it.
	Kind, Configuration, Name string
	Rules                     []admissionv1.RuleWithOperations
	// Blocks is true if objects cannot be written while the webhook does not respond.
	Blocks bool
}

// CRD is what a rehearsal has to know about a CustomResourceDefinition.
type CRD struct {
	Name string
	// Converted is true if a webhook converts between its versions.
	Converted bool
	// StoredOnly are versions in which objects may be stored, but which are not served.
	StoredOnly []string
}

// Inventory is what an API serves and stores.
type Inventory struct {
	// Version is the Kubernetes version.
	Version   string
	Resources []Resource
	// Objects are the numbers of objects.
	Objects map[schema.GroupResource]int
	Uses    map[schema.GroupVersionResource]Use
	// Aggregated are the versions that programs in the cluster serve.
	Aggregated map[schema.GroupVersion]bool
	Webhooks   []Webhook
	CRDs       map[string]CRD
}

// pageSize is the number of objects in a list.
const pageSize = 500

// Take returns the inventory of an API. It reads only.
func Take(ctx context.Context, config *rest.Config) (*Inventory, error) {
	inventory, err := discover(ctx, config)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, resource := range inventory.Resources {
		if !resource.Preferred {
			continue
		}
		if err := inventory.count(ctx, client, resource); err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
		}
	}
	return inventory, nil
}

// discover returns the inventory of an API without its objects.
func discover(ctx context.Context, config *rest.Config) (*Inventory, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, err
	}
	inventory := &Inventory{Version: version.GitVersion, Objects: map[schema.GroupResource]int{}, Uses: map[schema.GroupVersionResource]Use{}}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if inventory.Aggregated, err = findAggregated(ctx, dynamicClient); err != nil {
		return nil, err
	}
	if inventory.CRDs, err = findCRDs(ctx, dynamicClient); err != nil {
		return nil, err
	}
	if inventory.Webhooks, err = findWebhooks(ctx, dynamicClient); err != nil {
		return nil, err
	}
	groups, lists, err := client.ServerGroupsAndResources()
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); err != nil && !errors.As(err, &failed) { // an aggregated API does not respond
		return nil, fmt.Errorf("list the resources: %w", err)
	}
	inventory.Resources = storedResources(groups, lists, inventory.Aggregated)
	return inventory, nil
}

// storedResources returns the resources whose objects the API itself stores, except events, which come and go.
func storedResources(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, aggregated map[schema.GroupVersion]bool) []Resource {
	found := map[schema.GroupResource]map[string]Resource{} // by version
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || aggregated[gv] {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "componentstatuses" {
				continue
			}
			resource := Resource{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Updatable: slices.Contains(r.Verbs, "update")}
			if found[resource.GroupResource()] == nil {
				found[resource.GroupResource()] = map[string]Resource{}
			}
			found[resource.GroupResource()][gv.Version] = resource
		}
	}
	var all []Resource
	for _, group := range groups {
		order := []string{group.PreferredVersion.Version}
		for _, version := range group.Versions {
			order = append(order, version.Version)
		}
		for name, versions := range found {
			if name.Group != group.Name {
				continue
			}
			preferred := true
			for _, version := range order {
				if resource, ok := versions[version]; ok {
					resource.Preferred, preferred = preferred, false
					all = append(all, resource)
					delete(versions, version)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Resource) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// findAggregated returns the versions of APIs that programs in the cluster serve.
func findAggregated(ctx context.Context, client dynamic.Interface) (map[schema.GroupVersion]bool, error) {
	found := map[schema.GroupVersion]bool{}
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	list, err := client.Resource(services).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the APIServices: %w", err)
	}
	for _, item := range list.Items {
		if _, isAggregated, err := unstructured.NestedMap(item.Object, "spec", "service"); err != nil || !isAggregated {
			continue
		}
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(item.Object, "spec", "version")
		found[schema.GroupVersion{Group: group, Version: version}] = true
	}
	return found, nil
}

func findCRDs(ctx context.Context, client dynamic.Interface) (map[string]CRD, error) {
	found := map[string]CRD{}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	list, err := client.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the CustomResourceDefinitions: %w", err)
	}
	for _, item := range list.Items {
		found[item.GetName()] = newCRD(item.Object)
	}
	return found, nil
}

func newCRD(object map[string]any) CRD {
	name, _, _ := unstructured.NestedString(object, "metadata", "name")
	strategy, _, _ := unstructured.NestedString(object, "spec", "conversion", "strategy")
	stored, _, _ := unstructured.NestedStringSlice(object, "status", "storedVersions")
	versions, _, _ := unstructured.NestedSlice(object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if isServed, _ := version["served"].(bool); isServed {
			stored = slices.DeleteFunc(stored, func(name string) bool { return name == version["name"] })
		}
	}
	return CRD{Name: name, Converted: strategy == "Webhook", StoredOnly: stored}
}

// webhookConfigurations are the resources whose objects configure webhooks.
var webhookConfigurations = []schema.GroupVersionResource{
	admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"),
}

func findWebhooks(ctx context.Context, client dynamic.Interface) ([]Webhook, error) {
	var found []Webhook
	for _, resource := range webhookConfigurations {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the %s: %w", resource.Resource, err)
		}
		for _, item := range list.Items {
			webhooks, err := webhooksOf(item)
			if err != nil {
				return nil, fmt.Errorf("read %s %s: %w", item.GetKind(), item.GetName(), err)
			}
			found = append(found, webhooks...)
		}
	}
	return found, nil
}

// webhooksOf returns the webhooks of a configuration. What a rehearsal needs is the same in both kinds.
func webhooksOf(configuration unstructured.Unstructured) ([]Webhook, error) {
	var read admissionv1.ValidatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(configuration.Object, &read); err != nil {
		return nil, err
	}
	var found []Webhook
	for _, w := range read.Webhooks {
		found = append(found, Webhook{configuration.GetKind(), read.Name, w.Name, w.Rules, w.FailurePolicy == nil || *w.FailurePolicy == admissionv1.Fail})
	}
	return found, nil
}

// ofKubernetes are the field managers that are upgraded with the cluster.
var ofKubernetes = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "api-priority-and-fairness-config-producer-v1", "kwok"}

// count counts the objects of a resource, by the versions in which they were written.
func (i *Inventory) count(ctx context.Context, client metadata.Interface, resource Resource) error {
	managers := map[schema.GroupVersionResource]map[string]bool{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.Resource(resource.GroupVersionResource).List(ctx, options)
		if err != nil {
			return err
		}
		i.Objects[resource.GroupResource()] += len(page.Items)
		for _, object := range page.Items {
			for gvr, names := range writers(resource, object.ManagedFields) {
				use := i.Uses[gvr]
				use.Objects++
				i.Uses[gvr] = use
				if managers[gvr] == nil {
					managers[gvr] = map[string]bool{}
				}
				for _, name := range names {
					managers[gvr][name] = true
				}
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	for gvr, names := range managers {
		use := i.Uses[gvr]
		use.Managers = slices.Sorted(maps.Keys(names))
		i.Uses[gvr] = use
	}
	return nil
}

// writers returns who wrote an object, by version, without Kubernetes itself.
func writers(resource Resource, fields []metav1.ManagedFieldsEntry) map[schema.GroupVersionResource][]string {
	found := map[schema.GroupVersionResource][]string{}
	for _, entry := range fields {
		gv, err := schema.ParseGroupVersion(entry.APIVersion)
		if err != nil || gv.Group != resource.Group || slices.Contains(ofKubernetes, entry.Manager) || entry.Subresource != "" {
			continue
		}
		gvr := gv.WithResource(resource.Resource)
		found[gvr] = append(found[gvr], entry.Manager)
	}
	return found
}
