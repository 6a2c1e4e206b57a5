package virtualmachine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
)

// watchServers enqueues the VirtualMachine of a server that has changed.
func watchServers(drivers *Drivers) source.Source {
	return external.Changes(drivers.servers.Watch, func(id backend.Identity) client.ObjectKey {
		return client.ObjectKey{Namespace: id.Namespace, Name: id.Name}
	})
}

// Cache strips fields of VirtualMachines that this controller does not read from the cache of a manager.
func Cache(options *cache.Options) {
	kube.Transform(options, &v1alpha1.VirtualMachine{}, kube.StripManagedFields)
	for _, object := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
		kube.Transform(options, object, kube.StripManagedFields)
		kube.Select(options, object, ours)
	}
}

// ours selects the Services and EndpointSlices of machines. A cluster may have thousands of others.
var ours = labels.NewSelector().Add(*must(labels.NewRequirement(serviceLabel, selection.Exists, nil)))

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// watchServices enqueues the VirtualMachine of a Service or EndpointSlice that has changed.
func watchServices() handler.EventHandler {
	return kube.WatchChildren(kind.GroupKind(), func(_ context.Context, object client.Object) []client.ObjectKey {
		return []client.ObjectKey{client.ObjectKeyFromObject(object)}
	})
}
