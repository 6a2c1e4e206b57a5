package pod

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

const (
	// nodeName is the node of the simulated kubelet.
	nodeName = "simulated"
	// recordNamespace is the namespace of the manager.
	recordNamespace = "manager"
	// className is the StorageClass of the simulated volumes, which can expand.
	className = "simulated"
)

// cluster is a namespace of a real API server that enforces Pod Security "restricted". Its kubelet is simulated: it runs no
// containers, and only writes what a kubelet writes into the API.
type cluster struct {
	*testing.T
	api        kubernetes.Interface
	namespaces []string
	driver     *Driver
	launchers  *simulated
	// expands means that volumes are expanded.
	expands atomic.Bool
	// jobs returns the result of a job; nil while it is being done.
	jobs atomic.Pointer[func(*launcher.Job) *launcher.JobResult]
	// jobsWait means that the Pods of jobs find no node.
	jobsWait atomic.Bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	api, err := kubernetes.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, api: api, namespaces: []string{env.Namespace(t), "elsewhere"}, launchers: newSimulated()}
	for _, name := range append(c.namespaces, recordNamespace) {
		_, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
		if _, err := api.CoreV1().Namespaces().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		// The controller that creates it does not run.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := api.CoreV1().ServiceAccounts(name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: "example.com/simulated", AllowVolumeExpansion: ptr.To(true)}
	if _, err := api.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	c.expands.Store(true)
	t.Cleanup(c.clear)
	t.Cleanup(c.launchers.endAll)
	c.runKubelet()
	t.Cleanup(func() {
		if c.driver != nil {
			_ = c.driver.Close() // it may be closed
		}
	})
	return c
}

// clear removes what a failed test left behind.
func (c *cluster) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	grace, options := int64(0), metav1.ListOptions{LabelSelector: labelCluster}
	for _, namespace := range append(c.namespaces, recordNamespace) {
		core := c.api.CoreV1()
		err := errors.Join(core.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, options),
			core.Secrets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, options),
			core.PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, options),
			c.api.PolicyV1().PodDisruptionBudgets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, options))
		if err != nil {
			c.Errorf("clear up: %v", err)
		}
	}
}

// open opens the driver as a new manager.
func (c *cluster) open(t *testing.T) backend.Driver {
	t.Helper()
	return c.openWith(t, env.Config(t))
}

// openWith is open with a configuration of the API server.
func (c *cluster) openWith(t *testing.T, config *rest.Config) backend.Driver {
	t.Helper()
	if c.driver != nil {
		_ = c.driver.Close() // it may be closed
	}
	driver, err := openPatiently(Options{
		CPUAllocationRatio: 10,
		Config:             config, Namespaces: c.namespaces, RecordNamespace: recordNamespace, LauncherImage: "keelson-launcher:v1", GuestImage: "keelson-guest:v1",
		forward: c.launchers.forward, // there is no kubelet that forwards ports and has logs
	})
	if err != nil {
		t.Fatal(err)
	}
	driver.logs = c.launchers.logs
	c.driver = driver
	return driver
}

// openPatiently opens a driver, again if a busy API server has not answered in time, as a manager does.
func openPatiently(options Options) (driver *Driver, err error) {
	for range 10 {
		if driver, err = Open(options); err == nil {
			break
		}
	}
	return driver, err
}

func (c *cluster) machine(uid types.UID) backend.Machine {
	return backend.Machine{
		Identity: backend.Identity{UID: uid, Namespace: c.namespaces[0], Name: "vm", Cluster: "cluster"},
		MilliCPU: 1000, MemoryBytes: 128 << 20, DiskBytes: 64 << 20, Pod: v1alpha1.VirtualMachinePod{StorageClassName: className}, Hash: "1",
	}
}

// runKubelet simulates a kubelet, and the controllers of claims, until the end of the test.
func (c *cluster) runKubelet() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, namespace := range c.namespaces {
				pods, err := c.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labelCluster})
				if err != nil {
					continue
				}
				if err := c.syncClaims(ctx, namespace); err != nil && ctx.Err() == nil {
					c.Errorf("simulated controller of claims: %v", err)
				}
				for i := range pods.Items {
					if err := c.sync(ctx, &pods.Items[i]); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
						c.Errorf("simulated kubelet: %v", err)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	c.Cleanup(func() { cancel(); <-done })
}

// syncClaims does what the controllers of claims do: it binds them, and lets those go that are being deleted.
func (c *cluster) syncClaims(ctx context.Context, namespace string) error {
	api := c.api.CoreV1().PersistentVolumeClaims(namespace)
	claims, err := api.List(ctx, metav1.ListOptions{LabelSelector: labelCluster})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		patch := func(patch string, subresources ...string) error {
			_, err := api.Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		switch {
		case claim.DeletionTimestamp != nil:
			err = patch(`{"metadata":{"finalizers":null}}`)
		case claim.Status.Phase != corev1.ClaimBound:
			err = errors.Join(patch(`{"spec":{"volumeName":"`+claim.Name+`"}}`), patch(`{"status":{"phase":"Bound"}}`, "status"))
		case !c.expands.Load():
		case claim.Status.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) < 0:
			err = patch(`{"status":{"capacity":{"storage":"`+claim.Spec.Resources.Requests.Storage().String()+`"}}}`, "status")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sync does what a kubelet does for a Pod.
func (c *cluster) sync(ctx context.Context, pod *corev1.Pod) error {
	pods := c.api.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.Spec.NodeName == "" && pod.Labels[labelSnapshot] != "" && c.jobsWait.Load():
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "too big"}}
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{})
	case pod.DeletionTimestamp != nil && isOver(pod):
		grace := int64(0)
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0:
		return nil // see TestNeverTwice
	case pod.DeletionTimestamp != nil:
		return c.end(ctx, pod, c.launchers.endOf(pod))
	case pod.Status.Phase == corev1.PodRunning && pod.Labels[labelSnapshot] != "":
		return c.syncJob(ctx, pod)
	case c.launchers.isFalling(pod.UID):
		if isOver(pod) {
			return nil
		}
		return c.end(ctx, pod, launcher.Ended{Cause: launcher.CauseAsleep, SavedBytes: 1 << 20})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase, pod.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: "10.0.0.1"}}
		pod.Status.PodIP = "10.0.0.1"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: readiness(!c.launchers.areHindered()), LastTransitionTime: pod.CreationTimestamp}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	case pod.Status.Phase == corev1.PodRunning && pod.Status.Conditions[0].Status != readiness(!c.launchers.areHindered()):
		ready := readiness(pod.Status.Conditions[0].Status == corev1.ConditionFalse)
		// Times have no fractions of a second.
		pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(time.Now().Add(time.Second))}
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	return nil
}

func readiness(ready bool) corev1.ConditionStatus {
	if ready {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// end writes that the container of a Pod has ended.
func (c *cluster) end(ctx context.Context, pod *corev1.Pod, ended launcher.Ended) error {
	c.launchers.end(pod.UID)
	return c.endWith(ctx, pod, corev1.PodFailed, ended)
}

// endWith is end with a phase and a report.
func (c *cluster) endWith(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, report any) error {
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 1, Message: string(mustJSON(report)), StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
	}}}}
	_, err := c.api.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// kill ends the run of a machine.
func (c *cluster) kill(t *testing.T, uid types.UID) {
	t.Helper()
	harness.Eventually(t, "it is killed", func() bool {
		pod, err := c.api.CoreV1().Pods(c.namespaces[0]).Get(t.Context(), objectName(uid), metav1.GetOptions{})
		return err == nil && c.end(t.Context(), pod, launcher.Ended{Cause: launcher.CauseHost, Message: "QEMU was killed by signal 9"}) == nil
	})
}

// leftovers returns the objects of machines in the namespaces of the test.
func (c *cluster) leftovers(t *testing.T) (left []string) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: labelCluster}
	for _, namespace := range append(c.namespaces, recordNamespace) {
		pods, err := c.api.CoreV1().Pods(namespace).List(t.Context(), options)
		secrets, secretsErr := c.api.CoreV1().Secrets(namespace).List(t.Context(), options)
		claims, claimsErr := c.api.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), options)
		budgets, budgetsErr := c.api.PolicyV1().PodDisruptionBudgets(namespace).List(t.Context(), options)
		if err := errors.Join(err, secretsErr, claimsErr, budgetsErr); err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			left = append(left, "Pod "+pods.Items[i].Name)
		}
		for i := range secrets.Items {
			left = append(left, "Secret "+secrets.Items[i].Name)
		}
		for i := range claims.Items {
			left = append(left, "PersistentVolumeClaim "+claims.Items[i].Name)
		}
		for i := range budgets.Items {
			left = append(left, "PodDisruptionBudget "+budgets.Items[i].Name)
		}
	}
	return left
}

// loseRecord deletes the record of a machine, as an administrator may.
func (c *cluster) loseRecord(id backend.Identity) {
	c.Helper()
	c.must("Delete", c.api.CoreV1().Secrets(recordNamespace).Delete(c.Context(), recordName(id.Namespace, objectName(id.UID)), metav1.DeleteOptions{}))
}

// must makes a call that succeeds now or in the background.
func (c *cluster) must(what string, err error) {
	c.Helper()
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		c.Fatalf("%s: %v", what, err)
	}
}

// until waits for a state of a machine.
func (c *cluster) until(machine backend.Machine, what string, reached func(backend.Server) bool) (server backend.Server) {
	c.Helper()
	harness.Eventually(c, what, func() (ok bool) {
		var err error
		server, err = c.driver.Observe(c.Context(), machine.Identity)
		return err == nil && reached(server)
	})
	return server
}

func isRunning(s backend.Server) bool {
	return s.State == backend.StateRunning && s.Task == backend.TaskNone
}

// running returns a new machine that runs.
func (c *cluster) running() backend.Machine {
	c.Helper()
	machine := c.machine(uuid.NewUUID())
	c.runs(machine)
	return machine
}

// runs creates a machine, and starts it.
func (c *cluster) runs(machine backend.Machine) backend.Server {
	c.Helper()
	c.must("Create", c.driver.Create(c.Context(), machine))
	c.must("Start", c.driver.Start(c.Context(), machine))
	return c.until(machine, "it runs", isRunning)
}

// pod returns the Pod of a machine.
func (c *cluster) pod(machine backend.Machine) *corev1.Pod {
	c.Helper()
	pod, err := c.api.CoreV1().Pods(machine.Namespace).Get(c.Context(), objectName(machine.UID), metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// definition returns what the Pod of a machine runs.
func (c *cluster) definition(machine backend.Machine) launcher.Definition {
	c.Helper()
	definition, _ := definitionOf(c.pod(machine))
	return definition
}

// remove deletes a machine.
func (c *cluster) remove(machine backend.Machine) {
	c.Helper()
	harness.Eventually(c, "it is deleted", func() bool {
		return c.driver.Delete(c.Context(), machine.Identity, backend.DeleteOptions{}) == nil
	})
}

// nothingLeft expects no objects of machines.
func (c *cluster) nothingLeft() {
	c.Helper()
	if left := c.leftovers(c.T); len(left) > 0 {
		c.Errorf("left over: %q", left)
	}
}
