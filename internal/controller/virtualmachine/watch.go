package virtualmachine

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// watchServers enqueues the VirtualMachine of a server that has changed.
func watchServers(drivers *Drivers) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		drivers.watch(func(id backend.Identity) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}})
		})
		return nil
	})
}

// Cache strips fields of VirtualMachines that this controller does not read from the cache of a manager.
func Cache(options *cache.Options) {
	kube.Transform(options, &v1alpha1.VirtualMachine{}, kube.StripManagedFields)
}
