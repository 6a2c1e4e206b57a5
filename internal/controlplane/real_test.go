package controlplane_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/writer"
)

// TestLife takes a control plane through what a user does with it: started in a directory whose path is too long for a
// unix socket, left alone, taken over with other options, stopped although a component hangs.
func TestLife(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	dir = filepath.Join(dir, strings.Repeat("deep/", 20), "data")
	opts := controlplane.Options{Dir: dir, Binary: binary, Nodes: 2, Log: testr.New(t)}
	t.Cleanup(func() { _, _ = controlplane.StopAll(t.Context(), dir) }) // ended, so it kills
	cp := start(t, opts)
	c := client(t, dir)
	requireWorking(t, c, "first")
	requirePrivate(t, dir)
	for name, pid := range running(t, dir) {
		for _, address := range listening(t, pid) {
			if !address.IsLoopback() {
				t.Errorf("%s listens on %s", name, address)
			}
		}
	}
	if err := cp.Detach(); err != nil {
		t.Fatal(err)
	}

	before := running(t, dir)
	cp = start(t, opts)
	if diff := cmp.Diff(before, running(t, dir)); diff != "" {
		t.Errorf("what runs after it was taken over (-before +after):\n%s", diff)
	}
	if err := cp.Detach(); err != nil {
		t.Fatal(err)
	}

	opts.Ephemeral, opts.Nodes = true, 1
	cp = start(t, opts)
	after := running(t, dir)
	if after["etcd"] == before["etcd"] || !slices.Contains(cmdline(t, after["etcd"]), "--unsafe-no-fsync") {
		t.Errorf("etcd was not restarted with the new flags: pid %d, now %d", before["etcd"], after["etcd"])
	}
	before["etcd"] = after["etcd"]
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("other components than etcd were restarted (-before +after):\n%s", diff)
	}
	requireNodes(t, c, "simulated-0")
	requireWorking(t, c, "second")
	if _, err := c.AppsV1().Deployments("default").Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Errorf("an object from before: %v", err)
	}

	signals.Send(t, after["kube-apiserver"], syscall.SIGSTOP)
	began := time.Now()
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("stopped after %s", time.Since(began))
	requireGone(t, dir)
}

// A kube-apiserver ends by itself although clients watch, so that it is away only as long as it takes to start.
func TestStopDespiteWatches(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	cp := start(t, controlplane.Options{Dir: dir, Binary: binary, APIOnly: true, Ephemeral: true})
	c, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		if s.State != process.Exited || s.Signal == "SIGKILL" {
			t.Errorf("%s is %s, by %q; want an end without SIGKILL", s.ID, s.State, s.Signal)
		}
	}
}

func requireNodes(t *testing.T, c kubernetes.Interface, want ...string) {
	t.Helper()
	list, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, node := range list.Items {
		got = append(got, node.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// requirePrivate fails the test if others may read or reach anything below the directory.
func requirePrivate(t *testing.T, dir string) {
	t.Helper()
	var logs []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		// A socket is as closed as its directory.
		if info.Mode().Perm()&0o077 != 0 && info.Mode()&os.ModeSocket == 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		if filepath.Base(filepath.Dir(path)) == "logs" {
			logs = append(logs, strings.TrimSuffix(entry.Name(), ".log"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(names)), logs); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

// TestLongPortIsTakenWhileStopped: kube-apiserver has died while nobody looked, and another program has taken its port.
func TestLongPortIsTakenWhileStopped(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	opts := controlplane.Options{Dir: dir, Binary: binary, Nodes: 1, Log: testr.New(t)}
	cp := start(t, opts)
	w := writer.Start(t, always(client(t, dir)), "written")
	w.AwaitProgress(t)
	w.Stop()
	if err := cp.Detach(); err != nil {
		t.Fatal(err)
	}
	before := running(t, dir)
	kill(t, before["kube-apiserver"])
	old := cp.Server()
	server, err := url.Parse(old)
	if err != nil {
		t.Fatal(err)
	}
	var taken net.Listener
	eventually(t, "the port is free to be taken", func() bool {
		taken, err = net.Listen("tcp", server.Host)
		return err == nil
	})
	defer func() { _ = taken.Close() }()

	cp = start(t, opts)
	if cp.Server() == old || cp.Config().Host == old {
		t.Errorf("the API is still to be at %s", old)
	}
	after := running(t, dir)
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		if after[name] == before[name] {
			t.Errorf("%s was not restarted, so it looks for the API at its old port", name)
		}
	}
	if after["etcd"] != before["etcd"] {
		t.Error("etcd was restarted, although the port is none of its business")
	}
	c := client(t, dir)
	requireWorking(t, c, "moved")
	w.RequireAll(t, c)
	if err := cp.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	requireGone(t, dir)
}

// TestLongCertificatesAreRenewedWhileRunning lets half a year and more go by. The clock begins in the past, because the
// components have no other than the machine's.
func TestLongCertificatesAreRenewedWhileRunning(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	const step = 200 * 24 * time.Hour
	clock := clocktesting.NewFakeClock(time.Now().Add(-step))
	cp := start(t, controlplane.Options{Dir: dir, Binary: binary, Nodes: 1, Clock: clock, Log: testr.New(t)})
	server, err := url.Parse(cp.Server())
	if err != nil {
		t.Fatal(err)
	}
	oldConfig, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	before, old := running(t, dir), served(t, server.Host)

	eventually(t, "the renewal waits for its time", clock.HasWaiters)
	clock.Step(step)
	began := time.Now()
	eventually(t, "kube-apiserver serves a new certificate", func() bool { return !served(t, server.Host).Equal(old) })
	t.Logf("kube-apiserver serves the new certificate after %s", time.Since(began))
	eventually(t, "Config has a new certificate", func() bool {
		crt, err := os.ReadFile(cp.Config().CertFile)
		return err == nil && !bytes.Equal(crt, oldConfig.CertData)
	})
	// The last of its files is the kubeconfig.
	c := client(t, dir)
	requireWorking(t, c, "renewed")
	if diff := cmp.Diff(before, running(t, dir)); diff != "" {
		t.Errorf("components were restarted (-before +after):\n%s", diff)
	}
	oldClient, err := kubernetes.NewForConfig(oldConfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oldClient.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a copy of the old kubeconfig, whose certificate is still valid: %v", err)
	}
}

// served returns the certificate that the server at this address shows.
func served(t *testing.T, address string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // it is only looked at
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // everything is read
	return c.ConnectionState().PeerCertificates[0]
}
