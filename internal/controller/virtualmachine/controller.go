// Package virtualmachine reconciles VirtualMachines with the servers of a backend.
//
// The controller decides; a Driver acts. Long operations run in the background of the driver,
// which notifies the controller of changes, so that no worker ever blocks.
package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/disk"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/set"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/snapshot"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// Name is the name of this controller in logs, metrics, flags and events.
const Name = "virtualmachine"

// callTimeout limits each call of a driver.
const callTimeout = 10 * time.Second

var kind = v1alpha1.SchemeGroupVersion.WithKind("VirtualMachine")

// Reconciler reconciles the server of a VirtualMachine with its spec.
type Reconciler struct {
	kube.Base
	drivers *Drivers
	cluster *kube.ClusterIdentity

	mu    sync.Mutex
	stops map[types.UID]time.Time // when the stop of a server was requested
	// sleeps and wakes are when a machine was first told to sleep, and to wake.
	sleeps, wakes map[types.UID]time.Time
	// booting holds machines in their first run whose guests have not responded yet. It is not
	// persisted: the next manager does not measure them.
	booting map[types.UID]bool
	// created is when a server was first observed that is not in a status yet.
	created map[types.UID]time.Time

	probers *probers
}

// NewReconciler returns a Reconciler.
func NewReconciler(base kube.Base, drivers *Drivers) *Reconciler {
	return &Reconciler{
		Base:    base,
		drivers: drivers,
		cluster: kube.NewClusterIdentity(base.Live),
		stops:   map[types.UID]time.Time{},
		sleeps:  map[types.UID]time.Time{},
		wakes:   map[types.UID]time.Time{},
		booting: map[types.UID]bool{},
		created: map[types.UID]time.Time{},
		probers: &probers{clock: base.Clock, notify: drivers.servers.Notify, all: map[types.UID]*prober{}},
	}
}

// Add adds the controller to a manager. The caller closes drivers after the manager has stopped.
// It also adds the controllers of VirtualDisks, VirtualMachineSnapshots and VirtualMachineSets. With images, it also adds the controller of VirtualMachineImages, which needs a manager of all namespaces.
func Add(mgr ctrl.Manager, options controller.Options, drivers *Drivers, images bool) error {
	r := NewReconciler(kube.BaseOf(mgr, kind, Name), drivers)
	if err := mgr.Add(setup.Every(orphanInterval, r.collectOrphans)); err != nil {
		return fmt.Errorf("add the orphan collector of controller %s: %w", Name, err)
	}
	if err := mgr.Add(r.probers); err != nil {
		return fmt.Errorf("add the probes of controller %s: %w", Name, err)
	}
	if err := errors.Join(disk.Add(mgr, options, drivers), snapshot.Add(mgr, options, drivers), set.Add(mgr, options)); err != nil {
		return err
	}
	watches := ctrl.NewControllerManagedBy(mgr)
	if images {
		if err := image.Add(mgr, options, drivers); err != nil {
			return err
		}
		watches.Watches(&v1alpha1.VirtualMachineImage{}, watchImages(mgr.GetClient()))
	}
	watches.For(&v1alpha1.VirtualMachine{}).
		Watches(&v1alpha1.VirtualMachineSnapshot{}, watchSnapshots(mgr.GetClient())).
		Watches(&corev1.Service{}, watchServices()).
		Watches(&discoveryv1.EndpointSlice{}, watchServices()).
		WatchesRawSource(watchServers(drivers))
	if err := setup.Controller(mgr, Name, options, watches, r); err != nil {
		return err
	}
	registerMetrics(mgr.GetClient(), drivers)
	return nil
}

// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines/status,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachineimages,verbs=get
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesnapshots,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile observes the server of vm, and takes the next action.
func (r *Reconciler) Reconcile(ctx context.Context, vm *v1alpha1.VirtualMachine) (reconcile.Result, error) {
	observed, err := r.observe(ctx, vm)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(vm, observed, r.Clock.Now())
	kube.LogAction(ctx, plan.action)
	if plan.action == released {
		return reconcile.Result{}, nil
	}
	done := r.act(ctx, vm, observed, plan)
	if plan.action == remove && done == (acted{}) {
		// The object and its status may be gone now.
		return reconcile.Result{}, nil
	}
	return r.finish(ctx, vm, observed, summarize(vm, observed, plan, done), plan, done)
}

// observation is the state that a reconcile is based on.
type observation struct {
	// id identifies the server to the driver.
	id backend.Identity
	// name is the name of the driver; driver is nil if this manager does not have it.
	name   string
	driver Driver
	// host is where the driver keeps servers.
	host backend.Host
	// server is nil if it certainly does not exist, or if its state is unknown because of err.
	server *backend.Server
	err    error
	// probe is the result of spec.readinessProbe.
	probe probeState
	// restore is what spec.restore needs.
	restore restoreSeen
	// service are the Service and the EndpointSlice of the machine.
	service serviceObjects
	// scheduled are the VirtualMachineSnapshots that spec.snapshots has made.
	scheduled []snapshots.Snapshot
}

// observe reads everything. Errors of the driver are part of the observation; a returned error is one of the API.
func (r *Reconciler) observe(ctx context.Context, vm *v1alpha1.VirtualMachine) (observed observation, err error) {
	for _, observe := range []func(context.Context, *v1alpha1.VirtualMachine, *observation) error{
		r.observeServer, r.observeRestore, r.observeService, r.observeScheduled,
	} {
		if err := observe(ctx, vm, &observed); err != nil {
			return observed, err
		}
	}
	observed.probe = r.probers.follow(ctx, vm, observed)
	return observed, nil
}

// observeServer queries the driver.
func (r *Reconciler) observeServer(ctx context.Context, vm *v1alpha1.VirtualMachine, observed *observation) error {
	if observed.name, observed.err = driverOf(vm, r.drivers.Default()); observed.err != nil {
		return nil
	}
	if !vm.DeletionTimestamp.IsZero() && len(finalizersOf(vm)) == 0 && recordedDriver(vm) == "" {
		return nil // there was never a server
	}
	cluster, err := r.cluster.UID(ctx)
	if err != nil {
		return err
	}
	observed.id = backend.Identity{UID: vm.UID, Namespace: vm.Namespace, Name: vm.Name, Cluster: cluster}
	observed.driver, observed.err = r.drivers.get(observed.name)
	if observed.err != nil {
		observed.driver = nil
		return nil
	}
	observed.host = observed.driver.Host()
	if observed.err = checkHost(vm, observed.host); observed.err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var server backend.Server
	err = called(ctx, observed.driver, "Driver.Observe", "observe", func(ctx context.Context) (err error) {
		server, err = observed.driver.Observe(ctx, observed.id)
		return err
	})
	switch {
	case err == nil:
		observed.server = &server
	case errors.Is(err, backend.ErrNotFound):
		// There is none yet, or none any more.
	default:
		observed.err = err
	}
	return nil
}
