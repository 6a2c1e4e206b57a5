package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/bench/internal/realnode"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants with machines in Pods, on a real node.
const (
	// besidePods: bare QEMU, while the nodes run.
	besidePods = "bare QEMU, beside a node"
	// inPod: the machine has no disk; inPodDisk: it has one, on a new volume.
	inPod     = "VirtualMachine in a Pod"
	inPodDisk = "with a root disk"
	drained   = "drained node"
	lost      = "lost node"
)

// The targets of machines in Pods.
const (
	inPodLimit    = 700.0  // milliseconds above bare QEMU until the guest is ready
	inPodGone     = 1500.0 // milliseconds until a machine is deleted
	podMemory     = 20.0   // megabytes (PSS) of a Pod besides QEMU
	drainLimit    = 15.0   // seconds until a node is drained
	lossLimit     = 5.0    // seconds above a boot, from the taint until the agent of the machine answers elsewhere
	podNodes      = 2
	launcherImage = "keelson-launcher:bench"
	guestImage    = "keelson-guest:bench"
)

// The stages of the Pod of a machine that the API has, and the processes in it, with the times of their starts.
const (
	podCreated   = "Pod"
	podBound     = "node"
	podRuns      = "container, in the API"
	launcherRuns = "start of the launcher"
	qemuRuns     = "start of QEMU"
)

// launcher is the program of the container of a machine.
const launcher = "keelson-launcher"

// besidesQEMU are the programs of the Pod of a machine besides QEMU.
var besidesQEMU = append([]string{launcher}, realnode.PerPod...)

// podStages returns the stages that a Pod has reached.
func podStages(_ watch.EventType, object metav1.Object) ([]string, error) {
	pod := object.(*corev1.Pod)
	reached := []string{podCreated}
	if pod.Spec.NodeName != "" {
		reached = append(reached, podBound)
	}
	if pod.Status.Phase == corev1.PodRunning {
		reached = append(reached, podRuns)
	}
	return reached, nil
}

// measurePods measures machines of the driver pod on real nodes, on a control plane of their own.
func (b *bench) measurePods(ctx context.Context) (err error) {
	if b.pods == 0 {
		return nil
	}
	machine, err := b.findNodePrograms()
	if err != nil {
		return err
	}
	p := *b
	if p.Cluster, err = b.StartCluster(ctx, controlplane.Options{RealNode: &machine, RealNodes: podNodes}, writers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := p.loadImages(ctx, machine); err != nil {
		return err
	}
	m, err := p.StartManager(ctx, b.Binary, "virtualmachine", "--vm-driver=pod", "--vm-launcher-image="+launcherImage, "--vm-guest-image="+guestImage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	return m.During(ctx, func(ctx context.Context) error {
		if err := p.lifeInPod(ctx, &harness.Sample{Contestant: inPod, Size: 1}); err != nil { // whatever is done the first time
			return fmt.Errorf("the first machine in a Pod: %w", err)
		}
		err := b.InTurns(b.Rounds, aloneSize, []string{besidePods, inPod, inPodDisk}, "ready", func(s *harness.Sample) error {
			ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
			defer cancel()
			if s.Contestant == besidePods {
				return b.burstOfBare(ctx, s)
			}
			return p.lifeInPod(ctx, s)
		})
		if err != nil {
			return err
		}
		return p.measureMoves(ctx)
	})
}

// findNodePrograms finds what real nodes and the image of the launcher need.
func (b *bench) findNodePrograms() (node.Machine, error) {
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return node.Machine{}, err
	}
	machine := node.Look(filepath.Join(filepath.Dir(kube), "node"))
	missing := machine.Missing()
	if os.Geteuid() != 0 {
		missing = append(missing, "root, for several nodes")
	}
	if _, err := env.Binary(filepath.Join("launcher", "keelson-launcher")); err != nil {
		missing = append(missing, "bin/launcher, which `make launcher` builds")
	}
	if len(missing) > 0 {
		return machine, fmt.Errorf("this machine cannot run machines in Pods (--pods=0 leaves them out); missing: %s", strings.Join(missing, "; "))
	}
	return machine, nil
}

// loadImages loads the images of the launcher and of the guest into all nodes.
func (b *bench) loadImages(ctx context.Context, machine node.Machine) error {
	folder, err := env.Binary("launcher")
	if err != nil {
		return err
	}
	for _, words := range [][]string{{launcherImage, folder}, {guestImage, b.guest, "--entrypoint=/kernel"}} {
		if err := b.keelson(ctx, machine, append([]string{"image", "load", "--name"}, words...)...); err != nil {
			return err
		}
	}
	return nil
}

// keelson runs a command about the control plane.
func (b *bench) keelson(ctx context.Context, machine node.Machine, words ...string) error {
	command := exec.CommandContext(ctx, b.Binary, append(words, "--data-dir", b.Dir)...)
	command.Env = append(os.Environ(), "KEELSON_NODE="+machine.Programs)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("keelson %s: %w: %s", strings.Join(words, " "), err, output)
	}
	return nil
}

// newInPod returns a machine in a Pod.
func newInPod(namespace string, i int, contestant string) *v1alpha1.VirtualMachine {
	vm := newVirtualMachine(namespace, i, "")
	if contestant == inPodDisk {
		vm.Spec.Resource.RootDisk = ptr.To(resource.MustParse("64Mi"))
	}
	return vm
}

// lifeInPod creates machines in Pods, waits until all are ready, and deletes them.
func (b *bench) lifeInPod(ctx context.Context, s *harness.Sample) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	pods, err := harness.Watch(ctx, b.Observer.Kube.CoreV1().Pods(namespace))
	if err != nil {
		return err
	}
	o := harness.Observe(podStages, pods)
	defer o.Stop()
	g, err := b.createReady(ctx, s, namespace, func(i int) *v1alpha1.VirtualMachine { return newInPod(namespace, i, s.Contestant) })
	if err != nil {
		return err
	}
	for _, stage := range []string{podCreated, podBound, podRuns} {
		s.SetSeen(stage, g.began, o.Seen(stage))
	}
	if err := b.setPods(ctx, s, g.began); err != nil {
		return err
	}
	return b.removeFromPods(ctx, s, namespace)
}

// setPods sets the memory of the processes of machines in Pods, and when they started. began is when the machines were created.
func (b *bench) setPods(ctx context.Context, s *harness.Sample, began time.Time) error {
	report, err := controlplane.Inspect(ctx, b.Dir)
	if err != nil {
		return err
	}
	found := map[string][]int{}
	for _, component := range report.Components {
		if component.Name != "node" && !strings.HasPrefix(component.Name, "node-") || component.PID == 0 {
			continue
		}
		programs, err := realnode.Programs(component.PID)
		if err != nil {
			return err
		}
		for name, pids := range programs {
			found[name] = append(found[name], pids...)
		}
	}
	const qemu = "qemu-system-x86_64"
	if len(found[launcher]) != s.Size || len(found[qemu]) != s.Size {
		return fmt.Errorf("%d VirtualMachines are ready, and %d launchers and %d QEMUs run", s.Size, len(found[launcher]), len(found[qemu]))
	}
	for stage, pids := range map[string][]int{launcherRuns: found[launcher], qemuRuns: found[qemu]} {
		s.Set(stage)
		for _, pid := range pids {
			at, err := harness.StartOf(pid)
			if err != nil {
				return err
			}
			s.Figures[stage] = append(s.Figures[stage], at.Sub(began).Seconds())
		}
	}
	besides := 0.0
	for _, program := range besidesQEMU {
		sum, err := realnode.PSS(found[program])
		if err != nil {
			return err
		}
		s.Set(program, sum/float64(s.Size))
		besides += sum
	}
	s.Set("besides QEMU", besides/float64(s.Size))
	return setMachines(s, found[qemu])
}

// removeFromPods deletes the machines of a namespace and waits until they are gone.
func (b *bench) removeFromPods(ctx context.Context, s *harness.Sample, namespace string) error {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	w, err := harness.Watch(ctx, vms)
	if err != nil {
		return err
	}
	const gone = "gone"
	o := harness.Observe(func(event watch.EventType, _ metav1.Object) ([]string, error) {
		if event == watch.Deleted {
			return []string{gone}, nil
		}
		return nil, nil
	}, w)
	defer o.Stop()
	began := time.Now()
	if err := harness.DeleteAll(ctx, vms); err != nil {
		return err
	}
	seen, err := o.Await(ctx, gone, s.Size)
	if err == nil {
		s.SetSeen(gone, began, seen)
	}
	return err
}

// kubectl runs a command of kubectl.
func (b *bench) kubectl(ctx context.Context, input string, words ...string) error {
	program, err := env.Binary("keelson-kube")
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program, append([]string{"kubectl", "--kubeconfig", b.Kubeconfig}, words...)...)
	command.Stdin = bytes.NewBufferString(input)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(words, " "), err, output)
	}
	return nil
}

// reportPods reports the machines in Pods.
func (b *bench) reportPods() {
	all := b.Samples
	of := all.Of(inPod, aloneSize)
	if len(of) == 0 {
		return
	}
	above := all.Differences(inPod, besidePods, aloneSize, "ready", harness.Last)
	b.Target("1 machine in a Pod: ready, above bare QEMU", "≤", inPodLimit, 1000*above.Median, " ms",
		fmt.Sprintf("rounds from %.0f to %.0f; %s, and bare %s", 1000*above.Min, 1000*above.Max,
			harness.Seconds(of.Median("ready", harness.Last)), harness.Seconds(all.Of(besidePods, aloneSize).Median("ready", harness.Last))))
	b.Target("1 machine in a Pod: deleted", "≤", inPodGone, 1000*of.Median("gone", harness.Last), " ms", "until the API no longer has it")
	seconds := func(header, figure string) harness.Column {
		return harness.Column{Header: header, Figure: figure, Stat: harness.Last, Format: harness.Seconds}
	}
	if moved := all.Of(drained, b.pods); len(moved) > 0 {
		b.Target(fmt.Sprintf("%d machines in Pods: memory of each Pod besides QEMU", b.pods), "≤", podMemory, moved.Median("besides QEMU", harness.Last)/1e6, " MB",
			fmt.Sprintf("PSS of the launcher, the shim of containerd and pause; with one machine %s", harness.Megabytes(of.Median("besides QEMU", harness.Last))))
		b.Target(fmt.Sprintf("node with %d machines drained", b.pods), "≤", drainLimit, moved.Median("empty", harness.Last), " s",
			fmt.Sprintf("by kubectl drain; the last of them is ready elsewhere after %s", harness.Seconds(moved.Median("ready", harness.Last))))
	}
	if moved := all.Of(lost, aloneSize); len(moved) > 0 {
		spread := harness.NewSpread(moved.Pool("ready"))
		b.Target("node lost: machine ready elsewhere, above a boot in a Pod", "≤", lossLimit, spread.Median-of.Median("ready", harness.Last), " s",
			fmt.Sprintf("from the taint node.kubernetes.io/out-of-service; from %.1f to %.1f s in all, and its Pod was gone after %s", spread.Min, spread.Max,
				harness.Seconds(moved.Median("Pod gone", harness.Last))))
	}
	b.Printf("\n## Machines in Pods\n\nFrom the creation until the start of processes, and until the agent has answered:\n")
	b.SampleTable(aloneSize, []string{besidePods, inPod, inPodDisk}, seconds("Pod", podCreated), seconds("node", podBound), seconds("launcher", launcherRuns),
		seconds("QEMU", qemuRuns), seconds(podRuns, podRuns), seconds("ready", "ready"),
		harness.Column{Header: "× bare", Figure: "ready", Stat: harness.Last, Over: besidePods}, seconds("gone", "gone"),
		harness.Column{Header: "QEMU", Figure: "QEMU", Stat: harness.Last, Format: harness.Megabytes},
		harness.Column{Header: "of the guest", Figure: "guest", Stat: harness.Last, Format: harness.Megabytes})
	b.Printf("\nMemory (PSS) of a Pod besides QEMU, and how %d machines, and a single one, leave a node:\n", b.pods)
	for _, contestant := range []string{inPod, drained, lost} {
		size := aloneSize
		if contestant == drained {
			size = b.pods
		}
		var columns []harness.Column
		for _, program := range besidesQEMU {
			columns = append(columns, harness.Column{Header: program, Figure: program, Stat: harness.Last, Format: harness.Megabytes})
		}
		b.SampleTable(size, []string{contestant}, append(columns, seconds("first boot", "boot"), seconds("node empty", "empty"), seconds("Pod gone", "Pod gone"),
			seconds("ready elsewhere", "ready"))...)
	}
}
