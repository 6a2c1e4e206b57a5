package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// cluster answers from a local cache of Services and EndpointSlices. A lookup never causes a request, so Pods cannot load the
// API server with lookups, and names are still answered while it is away. The size of the cache depends on the number of
// Services and endpoints, never on what Pods ask for.
type cluster struct {
	services, slices *mirror
}

// errUnknown means that the cache cannot tell whether a name exists.
var errUnknown = errors.New("the name is not in the cache, and the cache is not up to date because the API server is unreachable")

// newCluster returns the names of the API that a node belongs to. run fills its cache. The client certificate is that of the
// node's kube-proxy, which may list and watch Services and EndpointSlices, and may read nothing else that concerns Pods.
func newCluster(s settings.Settings) (*cluster, error) {
	return newClusterAt(apiConfig(s, settings.KubeProxyCert, settings.KubeProxyKey))
}

// apiConfig returns the configuration of a client with this certificate and key of the node.
func apiConfig(s settings.Settings, cert, key string) *rest.Config {
	file := func(name string) string { return filepath.Join(s.Dir, name) }
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", s.APIPort),
		// client-go reads the files again when they are renewed.
		TLSClientConfig: rest.TLSClientConfig{CAFile: file(settings.CA), CertFile: file(cert), KeyFile: file(key)},
	}
}

func newClusterAt(config *rest.Config) (*cluster, error) {
	services, err := newMirror(config, "/api", corev1.SchemeGroupVersion, "services", &corev1.Service{}, cache.Indexers{byAddress: indexByAddress})
	if err != nil {
		return nil, err
	}
	slices, err := newMirror(config, "/apis", discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, cache.Indexers{byService: indexByService, byAddress: indexByAddress})
	if err != nil {
		return nil, err
	}
	return &cluster{services: services, slices: slices}, nil
}

// run keeps the cache up to date until the context ends.
func (c *cluster) run(ctx context.Context) {
	go c.slices.RunWithContext(ctx)
	c.services.RunWithContext(ctx)
}

// lookUp returns what is known about a name, which ends in a dot. It does no I/O. While the cache may be out of date, a name
// that it does not have is errUnknown: it may exist.
func (c *cluster) lookUp(name string) (answers, error) {
	parsed, ok := parseServiceName(name)
	if !ok {
		return answers{}, nil
	}
	if !c.services.HasSynced() || !c.slices.HasSynced() {
		return answers{}, errUnknown
	}
	found, err := c.find(parsed)
	if err == nil && !found.exists && (c.services.away.Load() || c.slices.away.Load()) {
		err = errUnknown
	}
	return found, err
}

// find returns what the cache has about a name.
func (c *cluster) find(name serviceName) (answers, error) {
	object, exists, err := c.services.GetIndexer().GetByKey(name.namespace + "/" + name.name)
	if err != nil || !exists {
		return answers{}, err
	}
	service := object.(*corev1.Service)
	var endpoints []*discoveryv1.EndpointSlice
	if isHeadless(service) {
		objects, err := c.slices.GetIndexer().ByIndex(byService, name.namespace+"/"+name.name)
		if err != nil {
			return answers{}, err
		}
		for _, object := range objects {
			endpoints = append(endpoints, object.(*discoveryv1.EndpointSlice))
		}
	}
	return answer(name, service, endpoints), nil
}

// byService is the index of EndpointSlices by the Service that they belong to.
const byService = "service"

func indexByService(object any) ([]string, error) {
	slice := object.(*discoveryv1.EndpointSlice)
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// byAddress is the index of Services and EndpointSlices by their addresses.
const byAddress = "address"

func indexByAddress(object any) (addresses []string, err error) {
	switch o := object.(type) {
	case *corev1.Service:
		for _, address := range serviceAddresses(o) {
			addresses = append(addresses, address.String())
		}
	case *discoveryv1.EndpointSlice:
		for _, e := range o.Endpoints {
			if len(e.Addresses) > 0 {
				addresses = append(addresses, e.Addresses[0])
			}
		}
	}
	return addresses, nil
}

// reverse returns the names of an address that the cache has: that of the Service, or those of an endpoint of headless Services. It does
// no I/O.
func (c *cluster) reverse(address netip.Addr) (found answers) {
	services, _ := c.services.GetIndexer().ByIndex(byAddress, address.String()) // the index exists
	for _, object := range services {
		s := object.(*corev1.Service)
		found.hosts = append(found.hosts, serviceName{namespace: s.Namespace, name: s.Name}.full())
	}
	endpoints, _ := c.slices.GetIndexer().ByIndex(byAddress, address.String())
	for _, object := range endpoints {
		slice := object.(*discoveryv1.EndpointSlice)
		name := serviceName{namespace: slice.Namespace, name: slice.Labels[discoveryv1.LabelServiceName]}
		service, exists, _ := c.services.GetIndexer().GetByKey(name.namespace + "/" + name.name)
		if !exists || !isHeadless(service.(*corev1.Service)) {
			continue
		}
		for _, e := range slice.Endpoints {
			if host, of, ok := hostOf(e, service.(*corev1.Service)); ok && of == address {
				found.hosts = append(found.hosts, host+"."+name.full())
			}
		}
	}
	slices.Sort(found.hosts)
	found.hosts = slices.Compact(found.hosts) // while an endpoint moves from one slice to another it may be in both
	found.exists = len(found.hosts) > 0
	return found
}

// mirror is an informer that knows whether its last request succeeded.
type mirror struct {
	cache.SharedIndexInformer
	away atomic.Bool
}

// newMirror returns an informer of a resource in all namespaces.
func newMirror(config *rest.Config, path string, version schema.GroupVersion, resource string, example runtime.Object, indexers cache.Indexers) (*mirror, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.ContentType = path, &version, runtime.ContentTypeProtobuf
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	m := &mirror{}
	requests := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	list, watchFrom := requests.ListWithContextFunc, requests.WatchFuncWithContext
	requests.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		objects, err := list(ctx, options)
		m.away.Store(err != nil)
		return objects, err
	}
	requests.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		events, err := watchFrom(ctx, options)
		m.away.Store(err != nil)
		return events, err
	}
	m.SharedIndexInformer = cache.NewSharedIndexInformer(requests, example, 0, indexers)
	return m, m.SetTransform(trim)
}

// trim drops what names and policies do not need, so that the cache stays small.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: trimMeta(o.ObjectMeta, ""), Spec: corev1.ServiceSpec{
			Type: o.Spec.Type, ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs, ExternalName: o.Spec.ExternalName,
			PublishNotReadyAddresses: o.Spec.PublishNotReadyAddresses, Ports: o.Spec.Ports,
		}}, nil
	case *discoveryv1.EndpointSlice:
		slice := &discoveryv1.EndpointSlice{ObjectMeta: trimMeta(o.ObjectMeta, discoveryv1.LabelServiceName), AddressType: o.AddressType, Ports: o.Ports}
		for _, e := range o.Endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: e.Addresses, Hostname: e.Hostname, Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready},
			})
		}
		return slice, nil
	case *corev1.Pod:
		return trimPod(o), nil
	case *corev1.Namespace:
		o.ManagedFields, o.Annotations = nil, nil
	case *networkingv1.NetworkPolicy:
		o.ManagedFields, o.Annotations = nil, nil
	}
	return object, nil // a tombstone
}

// trimMeta keeps what the informer needs, and one label.
func trimMeta(meta metav1.ObjectMeta, label string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
	if value, ok := meta.Labels[label]; ok {
		kept.Labels = map[string]string{label: value}
	}
	return kept
}
