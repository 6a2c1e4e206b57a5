package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// slim removes from an object what the driver does not read from the cache, which has those of all machines, and of tenants who write the
// labels of the driver.
func slim(given any) (any, error) {
	if found, ok := given.(client.Object); ok {
		isForeign := func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupName+"/") }
		maps.DeleteFunc(found.GetLabels(), isForeign)
		maps.DeleteFunc(found.GetAnnotations(), isForeign)
	}
	if pod, ok := given.(*corev1.Pod); ok {
		kept := corev1.PodSpec{NodeName: pod.Spec.NodeName}
		for _, c := range pod.Spec.Containers {
			i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == launcher.Variable && len(v.Value) <= maxDefinition })
			if c.Name == container && i >= 0 {
				kept.Containers = []corev1.Container{{Name: container, Env: []corev1.EnvVar{c.Env[i]}}}
			}
		}
		pod.Spec = kept
	}
	return cache.TransformStripManagedFields()(given)
}

// watch starts the watches.
func (d *Driver) watch() error {
	running, cancel := context.WithCancel(context.Background())
	d.running, d.cancel = running, cancel
	ctx, done := context.WithTimeout(running, syncTimeout)
	defer done()
	d.watches.Go(func() { _ = d.cache.Start(running) }) // it ends with its context
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Secret{}, &corev1.PersistentVolumeClaim{}} {
		informer, err := d.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch the Pods of machines: %w", err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: d.notifyObject, UpdateFunc: func(_, after any) { d.notifyObject(after) }, DeleteFunc: d.notifyObject,
		}); err != nil {
			return fmt.Errorf("watch the Pods of machines: %w", err)
		}
	}
	if !d.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("%w: the watches of Pods and PersistentVolumeClaims with the label %s, and of Secrets in the namespace %s, do not begin; may the manager list and watch them?",
			backend.ErrUnavailable, labelCluster, d.records)
	}
	d.watches.Go(func() { d.sampleUsage(running) })
	return nil
}

// notifyObject notifies the controller of a change of an object.
func (d *Driver) notifyObject(object any) {
	if deleted, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	known, ok := object.(client.Object)
	if !ok {
		return
	}
	d.mu.Lock()
	notify, notifySnapshot := d.notify, d.notifySnapshot
	d.mu.Unlock()
	if id := snapshotOf(known); id.UID != "" {
		notifySnapshot(id)
		if machine := ofSnapshot(known); machine.UID != "" {
			notify(machine) // its deletion waits for the Pod
		}
		if machine := filledBy(known); machine.UID != "" {
			notify(machine)
			d.followFill(machine)
		}
		return
	}
	id := identityOf(known)
	if id.UID == "" {
		return
	}
	if _, isPod := object.(*corev1.Pod); isPod {
		d.notifySnapshotsOf(id)
	}
	notify(id)
	d.followLive(id)
	d.followGuest(id)
	d.followFill(id) // its Secret may have been lost, and written again
}
