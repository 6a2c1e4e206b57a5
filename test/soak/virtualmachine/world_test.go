//go:build soak

package virtualmachine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	typed "github.com/keelson-dev/keelson/client/clientset/versioned/typed/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// Environment variables by which package process marks QEMU and its shim.
const (
	processMark = "KEELSON_PROCESS="
	shimMark    = "KEELSON_SHIM="
)

// world is a control plane, a state directory, and consecutive managers.
type world struct {
	kubeconfig string
	stateDir   string
	image      string
	vms        typed.VirtualMachineInterface
	snapshots  typed.VirtualMachineSnapshotInterface
	manager    *managers.Manager
	managers   int
	// uids are the UIDs of all machines ever created.
	uids map[types.UID]bool
	// counters are those of their guests.
	counters map[types.UID]*counter
}

func newWorld(t *testing.T) *world {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v. On Debian and Ubuntu: apt-get install qemu-system-x86 qemu-utils", err)
		}
	}
	dir := t.TempDir()
	w := &world{
		stateDir: filepath.Join(dir, "state"), image: filepath.Join(dir, "counter.raw"), uids: map[types.UID]bool{}, counters: map[types.UID]*counter{},
	}
	if err := os.WriteFile(w.image, newDisk(), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := env.ControlPlane(t, controlplane.Options{APIOnly: true, Dir: filepath.Join(dir, "cp")})
	t.Cleanup(func() { w.endAll(t) })
	config := cp.Config()
	config.QPS = -1
	env.Define(t, config)
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.kubeconfig, w.vms = cp.Kubeconfig(), clients.CloudnativeV1alpha1().VirtualMachines(metav1.NamespaceDefault)
	w.snapshots = clients.CloudnativeV1alpha1().VirtualMachineSnapshots(metav1.NamespaceDefault)
	return w
}

// newVM returns a small machine.
func (w *world) newVM(name string) *v1alpha1.VirtualMachine {
	return &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.VirtualMachineSpec{
			Resource: v1alpha1.Resources{CPU: resource.MustParse("1"), Memory: resource.MustParse("32Mi")},
			Image:    &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: w.image, Format: "raw"}, Agent: ptr.To(false)},
			// The guest ignores the power button.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
		},
	}
}

// create creates a machine unless its name exists. Changes are made to its spec before.
func (w *world) create(ctx context.Context, name string, changes ...func(*v1alpha1.VirtualMachineSpec)) error {
	vm := w.newVM(name)
	for _, change := range changes {
		change(&vm.Spec)
	}
	created, err := w.vms.Create(ctx, vm, metav1.CreateOptions{})
	if err == nil {
		w.uids[created.UID] = true
	}
	return err
}

// take takes a snapshot of a machine.
func (w *world) take(ctx context.Context, name, machine string, memory bool) error {
	_, err := w.snapshots.Create(ctx, &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: machine, Memory: memory},
	}, metav1.CreateOptions{})
	return err
}

// deleteSnapshots deletes all snapshots, and returns what is left of them; "" if nothing is.
func (w *world) deleteSnapshots(t *testing.T) string {
	t.Helper()
	list, err := w.snapshots.List(t.Context(), metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = w.snapshots.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) > 0 {
		s := list.Items[0]
		why := "is not observed"
		if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			why = ready.Message
		}
		return s.Name + ": " + why
	}
	if left := names(t, filepath.Join(w.stateDir, "machines", "snapshots")); len(left) > 0 {
		return fmt.Sprintf("the folders %v", left)
	}
	return ""
}

// patch changes the spec of a machine.
func (w *world) patch(ctx context.Context, name, spec string) error {
	_, err := w.vms.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}

// restore requests to restore a machine from a snapshot.
func (w *world) restore(ctx context.Context, name, snapshot string) error {
	spec := fmt.Sprintf(`{"spec":{"restore":{"snapshot":%q,"requestedAt":%q,"keepCurrent":false}}}`, snapshot, time.Now().UTC().Format(time.RFC3339))
	vm, err := w.vms.Patch(ctx, name, types.MergePatchType, []byte(spec), metav1.PatchOptions{})
	if err == nil {
		w.counterOf(vm.UID).restores++
	}
	return err
}

// list returns the machines.
func (w *world) list(t *testing.T) []v1alpha1.VirtualMachine {
	t.Helper()
	list, err := w.vms.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// startManager starts a manager without waiting until it is ready.
func (w *world) startManager(t *testing.T) {
	t.Helper()
	w.manager = managers.Start(t, fmt.Sprintf("manager-%d", w.managers), "--kubeconfig="+w.kubeconfig, "--controllers=virtualmachine",
		"--state-dir="+w.stateDir, "--vm-image-dirs="+filepath.Dir(w.image), "--metrics-bind-address=0")
	w.managers++
}

// running is a process of a machine.
type running struct {
	uid  types.UID
	shim bool
	pid  int
}

// processes returns the processes of all machines ever created, by the mark in their environment.
func (w *world) processes(t *testing.T) []running {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var all []running
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil {
			continue // it has just ended
		}
		found := running{pid: pid, shim: true}
		for _, variable := range bytes.Split(environ, []byte{0}) {
			mark, value, _ := strings.Cut(string(variable), "=")
			uid, _, _ := strings.Cut(value, ":")
			switch mark + "=" {
			case processMark:
				found.uid, found.shim = types.UID(uid), false
			case shimMark:
				if found.uid == "" {
					found.uid = types.UID(uid)
				}
			}
		}
		if w.uids[found.uid] {
			all = append(all, found)
		}
	}
	return all
}

// qemus returns the QEMUs by machine.
func (w *world) qemus(t *testing.T) map[types.UID][]int {
	t.Helper()
	all := map[types.UID][]int{}
	for _, p := range w.processes(t) {
		if !p.shim {
			all[p.uid] = append(all[p.uid], p.pid)
		}
	}
	return all
}

// endAll ends all machines that a failed test has left behind; the managers have already ended.
func (w *world) endAll(t *testing.T) {
	for _, p := range w.processes(t) {
		signals.Try(t, p.pid, syscall.SIGKILL)
	}
}

// eventually waits until why returns "".
func eventually(t *testing.T, what string, most time.Duration, why func() string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // there is no event to wait for
		if last = why(); last == "" {
			return
		}
	}
	t.Fatalf("Not within %v: %s; %s", most, what, last)
}

// unrest returns what has not settled yet; "" if every machine runs and reports it.
func (w *world) unrest(t *testing.T) string {
	t.Helper()
	for _, vm := range w.list(t) {
		ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case !vm.DeletionTimestamp.IsZero():
			return vm.Name + " is still being deleted: " + vm.Status.Reason
		case vm.Status.ObservedGeneration != vm.Generation:
			return vm.Name + " was changed, but not observed"
		case vm.Status.Phase != v1alpha1.PhaseActive || ready == nil || ready.Status != metav1.ConditionTrue:
			return fmt.Sprintf("%s is %s: %s", vm.Name, vm.Status.Phase, vm.Status.Reason)
		}
	}
	return ""
}

// mismatch compares the actual state with the expected machines, all running: processes, process
// records, folders, disks and sockets. "" means that they match.
func (w *world) mismatch(t *testing.T) string {
	t.Helper()
	var want []string
	for _, vm := range w.list(t) {
		want = append(want, string(vm.UID))
	}
	slices.Sort(want)
	found := map[string][]string{"processes of QEMU": nil, "shims": nil, "records": nil, "folders": names(t, filepath.Join(w.stateDir, "machines", "machines"))}
	for _, p := range w.processes(t) {
		kind := "processes of QEMU"
		if p.shim {
			kind = "shims"
		}
		found[kind] = append(found[kind], string(p.uid))
	}
	statuses, err := process.Peek(filepath.Join(w.stateDir, "machines", "processes"))
	if err != nil {
		return err.Error()
	}
	networks := 0
	for _, status := range statuses {
		if status.State != process.Running {
			return fmt.Sprintf("the process of %s is %s", status.ID, status.State)
		}
		if strings.HasPrefix(status.ID, "network.") {
			networks++
			continue
		}
		found["records"] = append(found["records"], status.ID)
	}
	for what, got := range found {
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%d %s, and %d machines:\n%v\n%v", len(got), what, len(want), got, want)
		}
	}
	if networks != min(len(want), 1) {
		return fmt.Sprintf("%d networks of %d machines in one namespace", networks, len(want))
	}
	files := []string{"agent.sock", "console.sock", "disk.qcow2", "machine.json", "monitor.sock", "network.sock", "qmp.sock", "seed.img", "serial.log"}
	for _, uid := range want {
		if got := names(t, filepath.Join(w.stateDir, "machines", "machines", uid)); !slices.Equal(got, files) {
			return fmt.Sprintf("the folder of %s has %v", uid, got)
		}
	}
	return ""
}

// names returns the sorted names in a folder, except temporary files.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// forAll calls do concurrently for every machine.
func forAll(t *testing.T, vms []v1alpha1.VirtualMachine, do func(context.Context, string) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range vms {
		all.Go(func() {
			if err := do(t.Context(), vms[i].Name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
