package pod

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The crash tests run this test binary as a manager, configured by these variables.
const (
	helperConfig    = "KEELSON_TEST_KUBECONFIG" // the kubeconfig of the API server
	helperNamespace = "KEELSON_TEST_NAMESPACE"  // the namespace of the machine
	helperForward   = "KEELSON_TEST_FORWARD"    // the address that forwards connections to simulated launchers
	helperFork      = "KEELSON_TEST_FORK"       // the UID of the snapshot that the machine is made of, or restored from
	helperRestore   = "KEELSON_TEST_RESTORE"    // the token of a restore of the machine, which is off
	// helperUID is the UID of the machine.
	helperUID = "0b5b4d8e-0000-4000-8000-0000000000dd"
)

func TestMain(m *testing.M) {
	if drivertest.IsManager() {
		if err := runHelper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	env.Main(m)
}

// runHelper runs a manager that is killed at a step.
func runHelper() error {
	step = drivertest.AtStep
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(helperConfig))
	if err != nil {
		return err
	}
	namespace := os.Getenv(helperNamespace)
	d, err := openPatiently(Options{Config: config, CPUAllocationRatio: 10, Namespaces: []string{namespace}, RecordNamespace: recordNamespace, LauncherImage: "keelson-launcher:v1", GuestImage: "keelson-guest:v1", forward: forwardFromHelper})
	if err != nil {
		return err
	}
	machine := killedMachine(namespace)
	if goal := os.Getenv(helperSnapshot); goal != "" {
		return manageSnapshot(d, goal, machine)
	}
	if id := os.Getenv(helperFork); id != "" {
		machine.Image, machine.Snapshot = &v1alpha1.Image{Snapshot: "before"}, types.UID(id)
	}
	if token := os.Getenv(helperRestore); token != "" {
		return errors.Join(untilRestored(d, machine, token), d.Close())
	}
	return drivertest.Manage(d, machine)
}

// forwardFromHelper connects to the simulated launcher of a Pod in the process of the test.
func forwardFromHelper(ctx context.Context, pod *corev1.Pod, _ int32) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", os.Getenv(helperForward))
	if err == nil {
		_, err = fmt.Fprintln(conn, pod.UID)
	}
	return conn, err
}

// serveForwards serves forwardFromHelper, and returns its address.
func (c *cluster) serveForwards(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go c.serveForward(conn)
		}
	}()
	return listener.Addr().String()
}

func (c *cluster) serveForward(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // it has ended
	reader := bufio.NewReader(conn)
	uid, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	to, err := c.launchers.forward(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strings.TrimSpace(uid))}}, 0)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(to, reader) // until one side ends
		_ = to.Close()
	}()
	_, _ = io.Copy(conn, to)
	_ = to.Close()
}

// killedMachine is a machine with a root disk and another one.
func killedMachine(namespace string) backend.Machine {
	return backend.Machine{
		Identity: backend.Identity{UID: helperUID, Namespace: namespace, Name: "vm", Cluster: "cluster"},
		MilliCPU: 1000, MemoryBytes: 128 << 20, DiskBytes: 64 << 20, Hash: "1",
		Disks: []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}, Pod: v1alpha1.VirtualMachinePod{StorageClassName: className, EvictionPolicy: v1alpha1.EvictionNone},
	}
}

// kubeconfig writes a kubeconfig of the API server of the tests, and returns its path.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config, path := env.Config(t), filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificate: config.CertFile, ClientCertificateData: config.CertData, ClientKey: config.KeyFile, ClientKeyData: config.KeyData,
			Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A manager killed at any line is followed by one that reaches the same state as an undisturbed one: one Pod, budget, seed and record and two claims, or none.
func TestLongManagerKilledAtEveryStep(t *testing.T) {
	c := newCluster(t)
	namespace := c.namespaces[0]
	variables := []string{helperConfig + "=" + kubeconfig(t), helperNamespace + "=" + namespace, helperForward + "=" + c.serveForwards(t)}
	must := func(goal drivertest.Goal) []string {
		t.Helper()
		steps, err := drivertest.Manager(t, goal, "", variables...)
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	seen := map[string]bool{}
	for _, way := range slices.Concat(drivertest.Ways, drivertest.SleepWays) {
		t.Run(strings.TrimSpace(string(way.Before+" "+way.Goal)), func(t *testing.T) {
			reset := func() {
				t.Helper()
				must(drivertest.ToDelete)
				if way.Before != "" {
					must(way.Before)
				}
			}
			reset()
			steps := must(way.Goal)
			if len(steps) == 0 {
				t.Fatalf("steps are %q", steps)
			}
			for _, at := range steps {
				seen[at] = true
				reset()
				before := c.podUID(t)
				if _, err := drivertest.Manager(t, way.Goal, at, variables...); err == nil {
					t.Errorf("no manager was killed at %q", at)
				}
				killed := c.podUID(t)
				must(way.Goal)
				if now := c.podUID(t); way.Goal == drivertest.ToRun && killed != "" && killed != before && now != killed {
					t.Errorf("after a kill at %q, the Pod was replaced", at)
				}
				want := map[drivertest.Goal][]string{
					drivertest.ToRun:    {"Pod", "Secret", "PersistentVolumeClaim", "PersistentVolumeClaim", "PodDisruptionBudget", "Secret"},
					drivertest.ToStop:   {"Secret", "PersistentVolumeClaim", "PersistentVolumeClaim", "PodDisruptionBudget", "Secret"},
					drivertest.ToSleep:  {"Secret", "PersistentVolumeClaim", "PersistentVolumeClaim", "PodDisruptionBudget", "Secret"},
					drivertest.ToDelete: nil,
				}[way.Goal]
				if got := c.kinds(t); !slices.Equal(got, want) {
					t.Errorf("after a kill at %q there are %q, want %q", at, got, want)
				}
			}
			must(drivertest.ToDelete)
		})
	}
	for _, want := range []string{"claim created", "secret created", "seed written", "run recorded", "Pod created", "stop recorded", "Pod is being deleted", "sleep requested", "budget created", "budget deleted", "sleep answered", "sleep recorded", "claim deleted", "secret deleted"} {
		if !seen[want] {
			t.Errorf("no manager was killed at %q", want)
		}
	}
}

// podUID returns the UID of the only Pod of machines; "" if there is none.
func (c *cluster) podUID(t *testing.T) string {
	t.Helper()
	pods, err := c.api.CoreV1().Pods(c.namespaces[0]).List(t.Context(), metav1.ListOptions{LabelSelector: labelUID})
	if err != nil || len(pods.Items) > 1 {
		t.Fatalf("Pods are %+v, %v", pods, err)
	}
	if len(pods.Items) == 0 {
		return ""
	}
	return string(pods.Items[0].UID)
}

// kinds returns the kinds of all objects of machines, without a Pod that is over: it keeps the log of a machine that was stopped.
func (c *cluster) kinds(t *testing.T) (kinds []string) {
	t.Helper()
	for _, left := range c.leftovers(t) {
		kind, name, _ := strings.Cut(left, " ")
		if kind == "Pod" {
			pod, err := c.api.CoreV1().Pods(c.namespaces[0]).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || pod.Status.Phase == corev1.PodFailed {
				continue
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds
}
