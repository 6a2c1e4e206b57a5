package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
)

// standIn returns a program that tells a version of Kubernetes, and those of other versions beside it.
func standIn(t *testing.T, version string, others ...string) string {
	t.Helper()
	main := filepath.Join(t.TempDir(), "keelson-kube")
	writeStandIn(t, main, version)
	for _, other := range others {
		writeStandIn(t, main+"-"+other, other)
	}
	return main
}

func writeStandIn(t *testing.T, path, version string) {
	t.Helper()
	write(t, path, "#!/bin/sh\nprintf 'kubernetes %s\\netcd v3.6.1\\nkwok v0.8.0\\n' "+version+"\n", 0o700)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// What a spec must not ask for is refused before anything is made, with words that tell what to do.
func TestSpecsThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spec    v1alpha1.ClusterSpec
		applied string // what the cluster has, if there is one
		want    error
		says    []string
	}{
		{"a version that is not there", v1alpha1.ClusterSpec{Version: "v1.35.0"}, "", cluster.ErrVersion,
			[]string{"v1.35.0 is not installed", "this manager has v1.34.9, v1.36.3, v1.36.9, v1.37.1", "keelson-kube-v1.35.0"}},
		{"a version whose program has another one", v1alpha1.ClusterSpec{Version: "v1.36.9"}, "", cluster.ErrVersion,
			[]string{"keelson-kube-v1.36.9 has the components of v1.36.8: rename it", "make kube KUBE_VERSION=v1.36.9"}},
		{"an older minor version than the data has", v1alpha1.ClusterSpec{Version: "v1.34.9"}, "v1.36.3", cluster.ErrVersion,
			[]string{"the cluster has v1.36.3", "choose the same minor version or the next"}},
		{"a minor version is skipped", v1alpha1.ClusterSpec{Version: "v1.36.3"}, "v1.34.9", cluster.ErrVersion,
			[]string{"cannot skip minor versions", "upgrade from v1.34.9 to v1.35 first"}},
		{"an address that is not allowed", v1alpha1.ClusterSpec{APIServer: &v1alpha1.APIServer{Address: "192.0.2.7"}}, "", cluster.ErrInvalid,
			[]string{"does not allow 192.0.2.7", "clusters.addressAllow"}},
		{"where etcd is", extra("etcd-servers", "http://10.0.0.1:2379"), "", cluster.ErrInvalid, []string{"--etcd-servers", "spec.apiServer.extraArgs"}},
		{"certificates", extra("tls-cert-file", "/tmp/x"), "", cluster.ErrInvalid, []string{"--tls-cert-file"}},
		{"who may come in", extra("anonymous-auth", "true"), "", cluster.ErrInvalid, []string{"--anonymous-auth"}},
		{"who may do what", extra("authorization-mode", "AlwaysAllow"), "", cluster.ErrInvalid, []string{"--authorization-mode"}},
		{"a file of the host to write to", extra("audit-log-path", "/etc/cron.d/x"), "", cluster.ErrInvalid, []string{"--audit-log-path", "names a file of the host"}},
		{"a file of the host to read", extra("token-auth-file", "/etc/passwd"), "", cluster.ErrInvalid, []string{"--token-auth-file"}},
		{"the logs of the host", extra("enable-logs-handler", "true"), "", cluster.ErrInvalid, []string{"--enable-logs-handler"}},
		{"where it listens", extra("bind-address", "0.0.0.0"), "", cluster.ErrInvalid, []string{"--bind-address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "clusters")
			main := standIn(t, "v1.36.3", "v1.34.9", "v1.37.1")
			writeStandIn(t, main+"-v1.36.9", "v1.36.8")
			engine := local.New(local.Options{Dir: dir, Nodes: 1, Binary: func() (string, error) { return main, nil }})
			request := cluster.Request{Name: "refused", UID: "refused", Spec: tt.spec}
			if tt.applied != "" {
				if err := os.MkdirAll(filepath.Join(dir, "refused", "etcd", "member"), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "refused", "applied.json"), `{"hash": "x", "version": "`+tt.applied+`"}`, 0o600)
			}
			err := engine.Apply(t.Context(), request)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Apply: %v; want %v", err, tt.want)
			}
			for _, text := range tt.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error %q does not say %q", err, text)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "refused", "processes")); err == nil {
				t.Error("something was started")
			}
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func extra(name, value string) v1alpha1.ClusterSpec {
	return v1alpha1.ClusterSpec{APIServer: &v1alpha1.APIServer{ExtraArgs: map[string]string{name: value}}}
}

// Without its program the engine says how to come by it.
func TestWithoutComponents(t *testing.T) {
	missing := errors.New("there is no keelson-kube: run make build")
	engine := local.New(local.Options{Dir: t.TempDir(), Binary: func() (string, error) { return "", missing }})
	request := cluster.Request{Name: "none", UID: "none"}
	if err := engine.Apply(t.Context(), request); !errors.Is(err, cluster.ErrUnavailable) || !errors.Is(err, missing) {
		t.Errorf("Apply: %v", err)
	}
	if _, err := engine.Observe(t.Context(), request); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("Observe: %v", err)
	}
	request.Deleting = true
	if _, err := engine.Observe(t.Context(), request); err != nil {
		t.Errorf("Observe of one that is being deleted, for which no program is needed: %v", err)
	}
}

func TestInstalled(t *testing.T) {
	main := standIn(t, "v1.36.3", "v1.37.1", "v1.9.11")
	writeStandIn(t, main+"-v1.36.9", "v1.36.8")
	write(t, main+"-v1.38.0", "#!/bin/sh\nexit 3\n", 0o700)
	write(t, main+"-notes", "no program\n", 0o600)
	got, err := local.Installed(t.Context(), main)
	if err != nil {
		t.Fatal(err)
	}
	want := []local.Components{
		{Version: "v1.9.11", Etcd: "v3.6.1", Program: main + "-v1.9.11"},
		{Version: "v1.36.3", Default: true, Etcd: "v3.6.1", Program: main},
		{Version: "v1.36.9", Etcd: "v3.6.1", Program: main + "-v1.36.9", Problem: main + "-v1.36.9 has the components of v1.36.8: rename it, " +
			"or build those of v1.36.9 with `make kube KUBE_VERSION=v1.36.9`"},
		{Version: "v1.37.1", Etcd: "v3.6.1", Program: main + "-v1.37.1"},
		{Version: "v1.38.0", Program: main + "-v1.38.0", Problem: "it does not report its version: exit status 3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := local.Installed(t.Context(), main+"-v1.38.0"); err == nil || !strings.Contains(err.Error(), "does not report its version") {
		t.Errorf("a main program that fails: %v", err)
	}
}
