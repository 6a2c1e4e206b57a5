package kubeconfig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestMain(m *testing.M) { env.Main(m) }

// withUser returns a kubeconfig with this user.
func withUser(t *testing.T, change func(*clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	user := &clientcmdapi.AuthInfo{}
	change(user)
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443"}
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestStatus(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("someone", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		t.Fatal(err)
	}
	good := withUser(t, func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData, u.ClientKeyData = certificate, key })
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	now := time.Now()
	links := t.TempDir()
	if err := os.Symlink(file("linked", good), filepath.Join(links, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		secret []byte // content of the Secret, if the Kubeconfig refers to one
		dirs   confine.Dirs
		spec   v1alpha1.KubeconfigSpec
		at     time.Time
		status metav1.ConditionStatus
		reason string
		says   string
		server string
	}{
		{name: "in a Secret", secret: good, at: now, status: "True", reason: v1alpha1.ReasonAvailable, server: "https://10.0.0.1:6443"},
		{name: "in a file", spec: v1alpha1.KubeconfigSpec{ConfigPath: file("good", good)}, at: now, status: "True", reason: v1alpha1.ReasonAvailable, server: "https://10.0.0.1:6443"},
		{name: "as the original stored it", spec: v1alpha1.KubeconfigSpec{LegacyConfigPath: file("old", good)}, at: now, status: "True", reason: v1alpha1.ReasonAvailable, server: "https://10.0.0.1:6443"},
		{name: "expired", secret: good, at: parsed[0].NotAfter, status: "False", reason: v1alpha1.ReasonKubeconfigExpired, says: "expired at", server: "https://10.0.0.1:6443"},
		{name: "nowhere", at: now, status: "False", reason: v1alpha1.ReasonNoKubeconfig, says: "Neither spec.secretRef nor spec.configPath"},
		{name: "an empty Secret", secret: []byte{}, at: now, status: "False", reason: v1alpha1.ReasonNoKubeconfig, says: "does not exist"},
		{name: "no file", spec: v1alpha1.KubeconfigSpec{ConfigPath: "/nowhere"}, at: now, status: "False", reason: v1alpha1.ReasonNoKubeconfig, says: "it does not exist"},
		{name: "a directory", spec: v1alpha1.KubeconfigSpec{ConfigPath: dir}, at: now, status: "False", reason: v1alpha1.ReasonNoKubeconfig, says: "not a regular file"},
		{
			name: "a file in a directory that is allowed", dirs: confine.Dirs{dir}, spec: v1alpha1.KubeconfigSpec{ConfigPath: file("in", good)},
			at: now, status: "True", reason: v1alpha1.ReasonAvailable, server: "https://10.0.0.1:6443",
		},
		{
			name: "a file in no directory that is allowed", dirs: confine.Dirs{filepath.Join(dir, "sub")}, spec: v1alpha1.KubeconfigSpec{ConfigPath: file("out", good)},
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "clusters.rkeConfigDirs",
		},
		{
			name: "out of the directory by dots", dirs: confine.Dirs{filepath.Join(dir, "sub")}, spec: v1alpha1.KubeconfigSpec{ConfigPath: filepath.Join(dir, "sub") + "/../good"},
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "clusters.rkeConfigDirs",
		},
		{
			name: "out of the directory by a link", dirs: confine.Dirs{links}, spec: v1alpha1.KubeconfigSpec{ConfigPath: filepath.Join(links, "link")},
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "a symbolic link leads out",
		},
		{name: "damaged", secret: []byte("password: [hunter2"), at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "it is no kubeconfig"},
		{
			name: "a program to run", secret: withUser(t, func(u *clientcmdapi.AuthInfo) {
				u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/true", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
			}),
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "not run here",
		},
		{
			name: "a file to read", secret: withUser(t, func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/shadow" }),
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "not read here",
		},
		{
			name: "a Secret elsewhere", spec: v1alpha1.KubeconfigSpec{SecretRef: &v1alpha1.SecretReference{Namespace: "kube-system", Name: "x"}},
			at: now, status: "False", reason: v1alpha1.ReasonKubeconfigInvalid, says: "is not read",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.dirs == nil {
				tt.dirs = confine.Anywhere
			}
			namespace := env.Namespace(t)
			c := harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme))
			if tt.secret != nil {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "k"}, Data: map[string][]byte{"value": tt.secret}}
				if err := c.Create(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
				tt.spec.SecretRef = &v1alpha1.SecretReference{Namespace: namespace, Name: "k"}
			}
			k := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "kubeconfig-of-" + namespace}, Spec: tt.spec}
			if err := c.Create(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), k) }) // other tests do not care
			r := &Reconciler{kube.NewBase(kind, c, c, nil, clocktesting.NewFakeClock(tt.at)), Options{SecretNamespace: namespace, ConfigDirs: tt.dirs}}
			for range 2 { // the first may migrate
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Reconcile(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
				t.Fatal(err)
			}
			statuscheck.Verify(t, k)
			ready := k.Status.Conditions[0]
			if ready.Status != tt.status || ready.Reason != tt.reason || !strings.Contains(ready.Message, tt.says) || strings.Contains(ready.Message, "hunter2") {
				t.Errorf("Ready is %s, %s: %s; want %s, %s with %q", ready.Status, ready.Reason, ready.Message, tt.status, tt.reason, tt.says)
			}
			if k.Status.Server != tt.server || k.Spec.LegacyConfigPath != "" {
				t.Errorf("server %q, want %q; spec %+v", k.Status.Server, tt.server, k.Spec)
			}
			if tt.server != "" {
				if diff := cmp.Diff(parsed[0].NotAfter.Unix(), k.Status.NotAfter.Unix()); diff != "" {
					t.Errorf("notAfter (-want +got):\n%s", diff)
				}
			}
		})
	}
}
