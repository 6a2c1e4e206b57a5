package up

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ourKubeconfig writes the kubeconfig of a control plane.
func ourKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeConfig(t, path, "keelson", server)
	return path
}

// writeConfig writes a kubeconfig with one context.
func writeConfig(t *testing.T, path, context, server string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos[context] = &clientcmdapi.AuthInfo{Token: "token of " + server}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context}
	config.CurrentContext = context
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// contexts returns the contexts of a kubeconfig with server and token, and the current one under
// "".
func contexts(t *testing.T, path string) map[string]string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"": config.CurrentContext}
	for name, context := range config.Contexts {
		found[name] = config.Clusters[context.Cluster].Server + " " + config.AuthInfos[context.AuthInfo].Token
	}
	return found
}

func TestMergeKubeconfig(t *testing.T) {
	const server = "https://127.0.0.1:20000"
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, home string)
		want    map[string]string
	}{
		{
			"the user has none",
			func(*testing.T, string) {},
			map[string]string{"": "keelson", "keelson": server + " token of " + server},
		},
		{
			"the user has another context",
			func(t *testing.T, home string) {
				writeConfig(t, filepath.Join(home, ".kube", "config"), "work", "https://work.example")
			},
			map[string]string{
				"": "work", "work": "https://work.example token of https://work.example", "keelson": server + " token of " + server,
			},
		},
		{
			"the user has an old context of Keelson",
			func(t *testing.T, home string) {
				writeConfig(t, filepath.Join(home, ".kube", "config"), "keelson", "https://127.0.0.1:30000")
			},
			map[string]string{"": "keelson", "keelson": server + " token of " + server},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := useHome(t)
			test.prepare(t, home)
			ours := ourKubeconfig(t, server)
			before, err := os.ReadFile(ours)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkMerge(); err != nil {
				t.Fatal(err)
			}
			if err := mergeKubeconfig(ours, rest.TLSClientConfig{}); err != nil {
				t.Fatal(err)
			}
			theirs := filepath.Join(home, ".kube", "config")
			if diff := cmp.Diff(test.want, contexts(t, theirs)); diff != "" {
				t.Errorf("the user's kubeconfig (-want +got)\n%s", diff)
			}
			if info, err := os.Stat(theirs); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the user's kubeconfig, which contains a key: %v, %v", info.Mode(), err)
			}
			after, err := os.ReadFile(ours)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(before), string(after)); diff != "" {
				t.Errorf("Keelson's own kubeconfig has changed (-before +after)\n%s", diff)
			}
		})
	}
}

// The certificate is renewed in its file; a copy in the user's kubeconfig would expire.
func TestMergeKubeconfigRefersToFiles(t *testing.T) {
	home, ours := useHome(t), filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["keelson"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:20000", CertificateAuthorityData: []byte("ca")}
	config.AuthInfos["keelson"] = &clientcmdapi.AuthInfo{ClientCertificateData: []byte("crt"), ClientKeyData: []byte("key")}
	if err := clientcmd.WriteToFile(*config, ours); err != nil {
		t.Fatal(err)
	}
	files := rest.TLSClientConfig{CAFile: "/data/ca.crt", CertFile: "/data/admin.crt", KeyFile: "/data/admin.key"}
	if err := mergeKubeconfig(ours, files); err != nil {
		t.Fatal(err)
	}
	theirs, err := clientcmd.LoadFromFile(filepath.Join(home, ".kube", "config"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := theirs.Clusters[contextName], theirs.AuthInfos[contextName]
	got := rest.TLSClientConfig{
		CAFile: cluster.CertificateAuthority, CAData: cluster.CertificateAuthorityData,
		CertFile: user.ClientCertificate, CertData: user.ClientCertificateData,
		KeyFile: user.ClientKey, KeyData: user.ClientKeyData,
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// useHome creates a home directory for the user and returns it. client-go reads the location of the
// kubeconfig file from the environment once, at its start, so KUBECONFIG has to refer to it.
func useHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(home, ".kube", "config"))
	return home
}

// With several kubeconfig files, each entry stays in its file.
func TestMergeKubeconfigIntoSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	writeConfig(t, first, "work", "https://work.example")
	writeConfig(t, second, "keelson", "https://127.0.0.1:30000")
	t.Setenv("KUBECONFIG", first+string(filepath.ListSeparator)+second)
	if err := mergeKubeconfig(ourKubeconfig(t, "https://127.0.0.1:20000"), rest.TLSClientConfig{}); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{first: {"", "work"}, second: {"", "keelson"}}
	for _, path := range []string{first, second} {
		if diff := cmp.Diff(want[path], slices.Sorted(maps.Keys(contexts(t, path)))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
	if got := contexts(t, second)["keelson"]; got != "https://127.0.0.1:20000 token of https://127.0.0.1:20000" {
		t.Errorf("Keelson's context is %q", got)
	}
}

func TestMergeKubeconfigLeavesOthersAlone(t *testing.T) {
	home := useHome(t)
	path := filepath.Join(home, ".kube", "config")
	writeConfig(t, path, "keelson", "https://production.example")
	want := "your kubeconfig already has a context keelson, for https://production.example: rename that context, or omit --merge-kubeconfig"
	if err := checkMerge(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := os.WriteFile(path, []byte("no kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkMerge(); err == nil {
		t.Error("an invalid kubeconfig is accepted")
	}
}

func TestUnmergeKubeconfig(t *testing.T) {
	home := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", home)
	writeConfig(t, home, "work", "https://work.example.org")
	ours := ourKubeconfig(t, "https://127.0.0.1:20000")
	if err := mergeKubeconfig(ours, rest.TLSClientConfig{CAFile: "/data/pki/ca.crt", CertFile: "/data/pki/admin.crt", KeyFile: "/data/pki/admin.key"}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir  string
		want int
	}{{"/other", 2}, {"/dat", 2}, {"/data", 1}, {"/data", 1}} {
		if err := UnmergeKubeconfig(test.dir); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.LoadFromFile(home)
		if err != nil {
			t.Fatal(err)
		}
		if len(config.Contexts) != test.want || len(config.Clusters) != test.want || len(config.AuthInfos) != test.want || config.CurrentContext != "work" {
			t.Errorf("after %s: %d contexts, the current one is %q", test.dir, len(config.Contexts), config.CurrentContext)
		}
	}
}
