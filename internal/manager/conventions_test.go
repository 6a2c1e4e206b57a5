package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/controller/crontab"
	"github.com/keelson-dev/keelson/internal/controller/kubeconfig"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/disk"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/set"
	machinesnapshot "github.com/keelson-dev/keelson/internal/controller/virtualmachine/snapshot"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// example is an object of a kind that becomes ready, and one that does not, both with these names.
type example struct {
	ready, failing client.Object
	// stranger is in the way of the failing one.
	stranger client.Object
	// reason is why it fails, in one of its conditions.
	reason string
	// conditions of the kind; nil if they are all those of its API.
	conditions []string
	// child of the ready one is deleted, to be made again: the first time is no event.
	child client.Object
	// tells is the reason of an event of the ready one; empty if there need be none.
	tells string
	// silent says that the kind has no events.
	silent bool
}

const (
	readyName   = "ready"
	failingName = "failing"
)

func about(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
}

// examples are those of each controller.
func examples() map[string]example {
	container := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}
	labels := map[string]string{"app": "stranger"}
	aDay := &metav1.Duration{Duration: 24 * time.Hour}
	return map[string]example{
		"foo": {
			ready:   &samplecontrollerv1alpha1.Foo{ObjectMeta: about(readyName), Spec: samplecontrollerv1alpha1.FooSpec{DeploymentName: readyName}},
			failing: &samplecontrollerv1alpha1.Foo{ObjectMeta: about(failingName), Spec: samplecontrollerv1alpha1.FooSpec{DeploymentName: failingName}},
			stranger: &appsv1.Deployment{ObjectMeta: about(failingName), Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: container.Containers}},
			}},
			child:  &appsv1.Deployment{ObjectMeta: about(readyName)},
			reason: samplecontrollerv1alpha1.ReasonErrResourceExists, tells: samplecontrollerv1alpha1.ReasonDeploymentCreated,
		},
		"sampleresource": {
			ready:    &samplev1.SampleResource{ObjectMeta: about(readyName), Spec: samplev1.SampleResourceSpec{PodImage: "nginx"}},
			failing:  &samplev1.SampleResource{ObjectMeta: about(failingName), Spec: samplev1.SampleResourceSpec{PodImage: "nginx"}},
			stranger: &corev1.Pod{ObjectMeta: about(failingName), Spec: container},
			child:    &corev1.Pod{ObjectMeta: about(readyName)},
			reason:   samplev1.ReasonErrResourceExists, tells: samplev1.ReasonPodCreated,
		},
		crontab.Name: {
			ready: &stablev1.CronTab{
				ObjectMeta: about(readyName),
				Spec:       stablev1.CronTabSpec{Schedule: "@yearly", RunRequestedAt: ptr.To(metav1.Now()), JobTemplate: &stablev1.JobTemplate{PodSpec: container}},
			},
			failing: &stablev1.CronTab{ObjectMeta: about(failingName), Spec: stablev1.CronTabSpec{
				Schedule: "30-10 * * * *", JobTemplate: &stablev1.JobTemplate{PodSpec: container},
			}},
			reason: stablev1.ReasonInvalidSchedule, tells: stablev1.ReasonSuccessfulCreate,
		},
		"virtualmachine": {
			ready: &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: about(readyName), Spec: virtualmachinev1alpha1.VirtualMachineSpec{
				Snapshots: &virtualmachinev1alpha1.SnapshotSchedule{SnapshotSchedule: commonv1.SnapshotSchedule{Schedule: "@yearly"}},
			}},
			// The driver fake runs no containers.
			failing: &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: about(failingName), Spec: virtualmachinev1alpha1.VirtualMachineSpec{
				Image: &virtualmachinev1alpha1.Image{Container: "busybox"}, Snapshots: &virtualmachinev1alpha1.SnapshotSchedule{SnapshotSchedule: commonv1.SnapshotSchedule{Schedule: "@yearly"}},
			}},
			reason: virtualmachinev1alpha1.ReasonInvalidSpec,
			conditions: []string{
				virtualmachinev1alpha1.ConditionReady, virtualmachinev1alpha1.ConditionCreated, virtualmachinev1alpha1.ConditionAgentConnected,
				virtualmachinev1alpha1.ConditionDisksReady, virtualmachinev1alpha1.ConditionGuestReady, virtualmachinev1alpha1.ConditionSynchronized, virtualmachinev1alpha1.ConditionSnapshotsUpToDate, virtualmachinev1alpha1.ConditionRestartRequired, virtualmachinev1alpha1.ConditionSoftwareEmulation,
			},
		},
		image.Name: {
			ready: &virtualmachinev1alpha1.VirtualMachineImage{
				ObjectMeta: metav1.ObjectMeta{Name: readyName},
				Spec:       virtualmachinev1alpha1.VirtualMachineImageSpec{ImageSource: virtualmachinev1alpha1.ImageSource{URL: "https://example.com/image", Sha256: strings.Repeat("0", 64)}},
			},
			// The driver fake has no files.
			failing: &virtualmachinev1alpha1.VirtualMachineImage{
				ObjectMeta: metav1.ObjectMeta{Name: failingName}, Spec: virtualmachinev1alpha1.VirtualMachineImageSpec{ImageSource: virtualmachinev1alpha1.ImageSource{Path: "/image"}},
			},
			reason: virtualmachinev1alpha1.ReasonInvalidSpec, tells: virtualmachinev1alpha1.ReasonImported,
			conditions: []string{virtualmachinev1alpha1.ConditionReady, virtualmachinev1alpha1.ConditionDeleting},
		},
		disk.Name: {
			ready: &virtualmachinev1alpha1.VirtualDisk{
				ObjectMeta: about(readyName), Spec: virtualmachinev1alpha1.VirtualDiskSpec{Size: ptr.To(resource.MustParse("1Gi"))},
			},
			// The driver fake has no files.
			failing: &virtualmachinev1alpha1.VirtualDisk{
				ObjectMeta: about(failingName), Spec: virtualmachinev1alpha1.VirtualDiskSpec{Image: &virtualmachinev1alpha1.VirtualDiskImage{ImageSource: virtualmachinev1alpha1.ImageSource{Path: "/image"}}},
			},
			reason: virtualmachinev1alpha1.ReasonInvalidSpec, tells: virtualmachinev1alpha1.ReasonDiskAvailable,
			conditions: []string{virtualmachinev1alpha1.ConditionReady, virtualmachinev1alpha1.ConditionDeleting},
		},
		machinesnapshot.Name: {
			ready: &virtualmachinev1alpha1.VirtualMachineSnapshot{
				ObjectMeta: about(readyName), Spec: virtualmachinev1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: readyName},
			},
			failing: &virtualmachinev1alpha1.VirtualMachineSnapshot{
				ObjectMeta: about(failingName), Spec: virtualmachinev1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "missing"},
			},
			reason: virtualmachinev1alpha1.ReasonMachineMissing, tells: virtualmachinev1alpha1.ReasonSnapshotTaken,
			conditions: []string{virtualmachinev1alpha1.ConditionReady},
		},
		set.Name: {
			ready:    &virtualmachinev1alpha1.VirtualMachineSet{ObjectMeta: about("set-" + readyName)},
			failing:  &virtualmachinev1alpha1.VirtualMachineSet{ObjectMeta: about("set-" + failingName)},
			stranger: &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: about("set-" + failingName + "-0")},
			child:    &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: about("set-" + readyName + "-0")},
			reason:   virtualmachinev1alpha1.ReasonErrResourceExists, tells: virtualmachinev1alpha1.ReasonMachineCreated,
			conditions: []string{virtualmachinev1alpha1.ConditionReady},
		},
		cluster.Name: {
			ready: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: readyName}, Spec: clusterv1alpha1.ClusterSpec{
				ExpiresAfter: aDay, Users: []clusterv1alpha1.ClusterUser{{Name: "ci"}}, Snapshots: &commonv1.SnapshotSchedule{Schedule: "@yearly"},
			}},
			failing: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: failingName}, Spec: clusterv1alpha1.ClusterSpec{
				Version: "v1.0.0", ExpiresAfter: aDay, Users: []clusterv1alpha1.ClusterUser{{Name: "ci"}}, Snapshots: &commonv1.SnapshotSchedule{Schedule: "@yearly"},
			}},
			reason: clusterv1alpha1.ReasonVersionNotAvailable, tells: clusterv1alpha1.ReasonApplied,
			conditions: []string{ // not Restored: there is no snapshot of these
				clusterv1alpha1.ConditionProvisioned, clusterv1alpha1.ConditionReady, clusterv1alpha1.ConditionControlPlaneAvailable,
				clusterv1alpha1.ConditionEtcdHealthy, clusterv1alpha1.ConditionKubeconfigAvailable, clusterv1alpha1.ConditionDeleting,
				clusterv1alpha1.ConditionPaused, clusterv1alpha1.ConditionNodesReady, clusterv1alpha1.ConditionUsersReady,
				clusterv1alpha1.ConditionSnapshotsUpToDate, clusterv1alpha1.ConditionExpiring,
			},
		},
		snapshot.Name: {
			ready: &clusterv1alpha1.ClusterSnapshot{
				ObjectMeta: metav1.ObjectMeta{Name: readyName}, Spec: clusterv1alpha1.ClusterSnapshotSpec{ClusterName: readyName},
			},
			failing: &clusterv1alpha1.ClusterSnapshot{
				ObjectMeta: metav1.ObjectMeta{Name: failingName}, Spec: clusterv1alpha1.ClusterSnapshotSpec{ClusterName: "missing"},
			},
			reason: clusterv1alpha1.ReasonClusterMissing, tells: clusterv1alpha1.ReasonSnapshotTaken,
			conditions: []string{clusterv1alpha1.ConditionReady},
		},
		// The ready one is that of the Cluster; the other says nowhere where its kubeconfig is.
		kubeconfig.Name: {
			ready:   &clusterv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: readyName}},
			failing: &clusterv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: failingName}},
			reason:  clusterv1alpha1.ReasonNoKubeconfig, conditions: []string{clusterv1alpha1.ConditionReady}, silent: true,
		},
	}
}

// Conditions and events of all kinds follow the same rules, of an object that becomes ready and of one that cannot: who
// knows one kind, and what watches it, knows all.
func TestLongConditionsAndEventsOfEveryKind(t *testing.T) {
	var log reconcileLog
	c := runEverything(t, env.ControlPlane(t, controlplane.Options{Nodes: 1}), (&Logging{Format: "json", Verbosity: 1}).NewLogger(&log))
	all := examples()
	names := append(Names(), image.Name, disk.Name, machinesnapshot.Name, set.Name, snapshot.Name) // further controllers of the kinds VirtualMachine and Cluster
	for _, name := range names {
		e, found := all[name]
		if !found {
			t.Errorf("no example of the controller %s", name)
			continue
		}
		for _, object := range []client.Object{e.stranger, e.ready, e.failing} {
			isMade := object == nil || name == kubeconfig.Name && object == e.ready
			if isMade {
				continue
			}
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatalf("create %T %s: %v", object, object.GetName(), err)
			}
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			e := all[name]
			said := readVocabulary(t, e.ready)
			if e.conditions != nil {
				said.conditions = e.conditions
			}
			defer func() {
				if t.Failed() {
					t.Logf("ready: %v\nfailing: %v", conditionsOf(t, e.ready), conditionsOf(t, e.failing))
				}
			}()
			e.becomesReady(t, c)
			conditions := e.fails(t, c)
			harness.Eventually(t, "the log says what was decided about both", func() bool {
				return log.has(name, e.ready, true) && log.has(name, e.failing, false)
			})
			for _, object := range []client.Object{e.ready, e.failing} {
				said.checkConditions(t, object)
				checkSubresource(t, c, object)
				said.checkEvents(t, c, name, object)
			}
			for _, event := range eventsOf(t, c, e.ready) {
				if event.Type == corev1.EventTypeWarning {
					t.Errorf("a warning about an object that is well: %s: %s", event.Reason, event.Note)
				}
			}
			// Who reads a warning finds its words in the status, too.
			for _, event := range eventsOf(t, c, e.failing) {
				if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Reason == event.Reason && c.Message == event.Note }) {
					t.Errorf("the event %s: %s: no condition says that, but %v", event.Reason, event.Note, conditions)
				}
			}
			if e.silent && len(eventsOf(t, c, e.ready))+len(eventsOf(t, c, e.failing)) > 0 {
				t.Error("there are events of a kind that has none")
			}
		})
	}
	t.Run("a machine goes on when its image is there", func(t *testing.T) { checkImageOfMachine(t, c) })
	t.Run("metrics", func(t *testing.T) {
		now := time.Now().UTC().Format(time.RFC3339)
		never := fmt.Sprintf(`{"status":{"lastScheduleTime":%[1]q,"lastSuccessfulTime":%[1]q,"lastRun":{"jobName":"job","result":"Failed","finishTime":%[1]q}}}`, now)
		retainDisk(t, c)
		var kinds map[string]string
		harness.Eventually(t, "the CronTab has metrics for all times", func() bool {
			// The controller may write the status again, so the times are set again, too.
			if err := c.Status().Patch(t.Context(), all[crontab.Name].ready, client.RawPatch(types.MergePatchType, []byte(never))); err != nil {
				t.Fatal(err)
			}
			kinds = knownKinds(t)
			return kinds["crontab_status_last_failure_time"] != "" && kinds["crontab_status_last_schedule_time"] != "" && kinds["crontab_status_last_successful_time"] != ""
		})
		checkKinds(t, kinds)
	})
}

// checkImageOfMachine creates a machine before its image, and deletes the image before the machine.
func checkImageOfMachine(t *testing.T, c client.Client) {
	t.Helper()
	vm := &virtualmachinev1alpha1.VirtualMachine{
		ObjectMeta: about("waiting"),
		Spec:       virtualmachinev1alpha1.VirtualMachineSpec{Image: &virtualmachinev1alpha1.Image{Name: "late"}},
	}
	it := &virtualmachinev1alpha1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec:       virtualmachinev1alpha1.VirtualMachineImageSpec{ImageSource: virtualmachinev1alpha1.ImageSource{URL: "https://example.com/late", Sha256: strings.Repeat("0", 64)}},
	}
	hasReason := func(object client.Object, reason string) func() bool {
		return func() bool {
			return slices.ContainsFunc(settled(t, c, object), func(c metav1.Condition) bool { return c.Reason == reason })
		}
	}
	if err := c.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the machine waits", hasReason(vm, virtualmachinev1alpha1.ReasonImageMissing))
	if err := c.Create(t.Context(), it); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the machine runs", hasReason(vm, virtualmachinev1alpha1.ReasonGuestReady))
	if err := c.Delete(t.Context(), it); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the deletion waits for the machine", hasReason(it, virtualmachinev1alpha1.ReasonInUse))
	if err := c.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{vm, it} {
		harness.Eventually(t, "both are gone", func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		})
	}
}

// retainDisk deletes a machine without its disk.
func retainDisk(t *testing.T, c client.Client) {
	t.Helper()
	vm := &virtualmachinev1alpha1.VirtualMachine{
		ObjectMeta: about("retained"),
		Spec:       virtualmachinev1alpha1.VirtualMachineSpec{DiskPolicy: virtualmachinev1alpha1.DiskRetain},
	}
	if err := c.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the machine is created", func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm) == nil && vm.Status.Phase == virtualmachinev1alpha1.PhaseActive
	})
	if err := c.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the machine is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	})
}

// reconcileLog is the log of a manager at level 1. It keeps one line for each reconcile.
type reconcileLog struct {
	mu    sync.Mutex
	lines []reconcileLine
}

type reconcileLine struct{ Msg, Controller, Namespace, Name, Action, Ready, Reason string }

// Write implements io.Writer. Each call is one line.
func (l *reconcileLog) Write(p []byte) (int, error) {
	var line reconcileLine
	if err := json.Unmarshal(p, &line); err == nil && line.Msg == "Reconciled" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}
	return len(p), nil
}

// has reports whether a reconcile of the object logged an action, and whether it is ready with a reason.
func (l *reconcileLog) has(controller string, object client.Object, isReady bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line reconcileLine) bool {
		return line.Controller == controller && line.Namespace == object.GetNamespace() && line.Name == object.GetName() &&
			line.Action != "" && line.Action != "none" && line.Ready != "" && (line.Ready == "True") == isReady && line.Reason != ""
	})
}

// runEverything starts a manager with all controllers on a control plane, until the test ends. It returns the
// administrator's client.
func runEverything(t *testing.T, cp *controlplane.ControlPlane, logger logr.Logger) client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.WaitTimeout)
	defer cancel()
	if err := cp.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	env.Define(t, cp.Config())
	o := newTestOptions(t, metav1.NamespaceDefault)
	o.Namespaces = nil // of all namespaces, for kinds of the cluster
	o.StateDir, o.Ephemeral, o.Machines.Drivers = t.TempDir(), true, []string{fake.Name}
	o.KubeBinary = func() (string, error) { return env.Binary("keelson-kube") }
	o.Logger = logger
	t.Cleanup(func() {
		if _, err := local.StopAll(t.Context(), ClusterDir(o.StateDir)); err != nil { // the context has ended: it kills
			t.Errorf("end the clusters: %v", err)
		}
	})
	m := startWith(t, cp.Config(), o, controllers...)
	t.Cleanup(func() {
		m.stop()
		if err := within(t, "the manager to stop", m.result); err != nil {
			t.Error(err)
		}
	})
	within(t, "the manager to be ready", m.Ready())
	c, err := client.New(cp.Config(), client.Options{Scheme: m.GetScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// becomesReady waits until the one is ready, its status is whole, and its event was told.
func (e example) becomesReady(t *testing.T, c client.Client) {
	t.Helper()
	isReady := func() bool {
		return slices.ContainsFunc(settled(t, c, e.ready), func(c metav1.Condition) bool {
			return c.Type == "Ready" && c.Status == metav1.ConditionTrue
		})
	}
	harness.Eventually(t, "it is ready", isReady)
	if e.child != nil {
		if err := c.Delete(t.Context(), e.child); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "it is ready, and told", func() bool {
		return (e.tells == "" || hasEvent(eventsOf(t, c, e.ready), corev1.EventTypeNormal, e.tells)) && isReady()
	})
}

// fails waits until the other one says why it cannot be, in a condition and in a warning, and returns its conditions.
func (e example) fails(t *testing.T, c client.Client) []metav1.Condition {
	t.Helper()
	var conditions []metav1.Condition
	harness.Eventually(t, "it fails, and told", func() bool {
		conditions = settled(t, c, e.failing)
		return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Status != metav1.ConditionTrue }) &&
			slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Reason == e.reason && c.Status == metav1.ConditionFalse }) &&
			(e.silent || hasEvent(eventsOf(t, c, e.failing), corev1.EventTypeWarning, e.reason))
	})
	return conditions
}

// settled reads an object, and returns its conditions if its status keeps all rules; none before.
func settled(t *testing.T, c client.Client, object client.Object) []metav1.Condition {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if len(statuscheck.Problems(object)) > 0 {
		return nil
	}
	return conditionsOf(t, object)
}

func conditionsOf(t *testing.T, object client.Object) []metav1.Condition {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	var it struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &it); err != nil {
		t.Fatal(err)
	}
	return it.Status.Conditions
}

// eventsOf returns the events about objects of the kind and name of an object, whichever UID they say.
func eventsOf(t *testing.T, c client.Client, object client.Object) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(event eventsv1.Event) bool {
		return event.Regarding.Kind != kind.Kind || event.Regarding.Name != object.GetName()
	})
}

func hasEvent(events []eventsv1.Event, kind, reason string) bool {
	return slices.ContainsFunc(events, func(event eventsv1.Event) bool { return event.Type == kind && event.Reason == reason })
}

// vocabulary are the constants of an API.
type vocabulary struct{ conditions, reasons []string }

// readVocabulary reads those of the package of an object. That constants are called as their values another test checks.
func readVocabulary(t *testing.T, object client.Object) vocabulary {
	t.Helper()
	_, folder, _ := strings.Cut(reflect.TypeOf(object).Elem().PkgPath(), "/keelson/")
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*conditions.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no conditions of %T: %v", object, err)
	}
	var source []byte
	for _, file := range files {
		more, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, more...)
	}
	var v vocabulary
	for _, constant := range regexp.MustCompile(`(?m)^\t(Condition|Reason)\w+ += "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		if constant[1] == "Condition" {
			v.conditions = append(v.conditions, constant[2])
		} else {
			v.reasons = append(v.reasons, constant[2])
		}
	}
	return v
}

// sentence is the form of messages: no period ends them, so that they can stand in a longer one.
var sentence = regexp.MustCompile(`(?s)^\S.*[^.\s]$`)

// checkConditions looks for the rules that statuscheck, which knows no kind, does not know.
func (v vocabulary) checkConditions(t *testing.T, object client.Object) {
	t.Helper()
	var names []string
	for _, condition := range conditionsOf(t, object) {
		names = append(names, condition.Type)
		if !slices.Contains(v.reasons, condition.Reason) {
			t.Errorf("%s: the condition %s has the reason %s, which is no constant of the API", object.GetName(), condition.Type, condition.Reason)
		}
		if !sentence.MatchString(condition.Message) {
			t.Errorf("%s: the condition %s says %q", object.GetName(), condition.Type, condition.Message)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(slices.Values(v.conditions)), names); diff != "" {
		t.Errorf("%s: conditions (-constants of the API +object):\n%s", object.GetName(), diff)
	}
}

// checkSubresource tries to write a status as users write a spec.
func checkSubresource(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	// A patch would replace the whole list. It may change by itself meanwhile: components of a Cluster still start when it is ready.
	const patch = `{"status":{"conditions":[{"type":"Forged","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	conditions := conditionsOf(t, object)
	if len(conditions) == 0 || slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Forged" }) {
		t.Errorf("%s: conditions after somebody else wrote them: %v", object.GetName(), conditions)
	}
}

var verb = regexp.MustCompile(`^([A-Z][a-z]+)+$`)

func (v vocabulary) checkEvents(t *testing.T, c client.Client, controller string, object client.Object) {
	t.Helper()
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range eventsOf(t, c, object) {
		said := fmt.Sprintf("%s: the event %s %s: %s", object.GetName(), event.Type, event.Reason, event.Note)
		if event.Type != corev1.EventTypeNormal && event.Type != corev1.EventTypeWarning {
			t.Errorf("%s: its type", said)
		}
		if !slices.Contains(v.reasons, event.Reason) {
			t.Errorf("%s: its reason is no constant of the API", said)
		}
		if !verb.MatchString(event.Action) {
			t.Errorf("%s: its action %q is no verb", said, event.Action)
		}
		if !sentence.MatchString(event.Note) {
			t.Errorf("%s: its note", said)
		}
		if event.ReportingController != controller || event.ReportingInstance == "" {
			t.Errorf("%s: it is of the controller %q in %q", said, event.ReportingController, event.ReportingInstance)
		}
		want := corev1.ObjectReference{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		}
		if diff := cmp.Diff(want, event.Regarding); diff != "" {
			t.Errorf("%s: whom it is about (-want +got):\n%s", said, diff)
		}
	}
}
