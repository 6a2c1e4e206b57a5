package target_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// write writes a kubeconfig with the given contexts, each with the server https://CONTEXT. The first one is the current one.
func write(t *testing.T, path string, contexts ...string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	for _, name := range contexts {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "secret"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "of-" + name}
	}
	if len(contexts) > 0 {
		config.CurrentContext = contexts[0]
	}
	writeConfig(t, config, path)
}

func writeConfig(t *testing.T, config *clientcmdapi.Config, path string) {
	t.Helper()
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// newHome makes an empty home directory the one of the user.
func newHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{"KUBECONFIG", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("TMPDIR", home)
	usual := clientcmd.RecommendedHomeFile // of the home directory at the start of the program
	clientcmd.RecommendedHomeFile = filepath.Join(home, ".kube", "config")
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = usual })
	return home
}

// selected describes the API that flags select: the address, or the directory of the instance that does not run.
func selected(t *testing.T, flags target.Flags) string {
	t.Helper()
	api, err := flags.API(t.Context())
	if stopped := (*target.NotRunningError)(nil); errors.As(err, &stopped) {
		return stopped.Dir
	}
	if err != nil {
		return err.Error()
	}
	again, err := api.Selected.API(t.Context())
	if err != nil || again.Config.Host != api.Config.Host || again.Namespace != api.Namespace {
		t.Errorf("%+v selects %v, %v", api.Selected, again, err)
	}
	return api.Config.Host + " " + api.Namespace
}

func TestPrecedence(t *testing.T) {
	const mine, other = "https://mine of-mine", "https://other of-other"
	for _, test := range []struct {
		name        string
		home, env   []string // the contexts of ~/.kube/config and $KUBECONFIG; nil if there is none
		flags       target.Flags
		want        string // HOME stands for the home directory
		inFlagsFile []string
	}{
		{name: "nothing: Keelson on this host", want: "HOME/.local/share/keelson"},
		{name: "the current context of ~/.kube/config before Keelson on this host", home: []string{"mine"}, want: mine},
		{name: "$KUBECONFIG before ~/.kube/config", home: []string{"mine"}, env: []string{"other"}, want: other},
		{name: "a kubeconfig without a current context is none", home: []string{}, want: "HOME/.local/share/keelson"},
		{name: "--context before the current one", home: []string{"mine", "other"}, flags: target.Flags{Context: "other"}, want: other},
		{name: "--context of $KUBECONFIG", home: []string{"mine"}, env: []string{"x", "other"}, flags: target.Flags{Context: "other"}, want: other},
		{
			name: "--kubeconfig before $KUBECONFIG", env: []string{"mine"}, inFlagsFile: []string{"other"},
			flags: target.Flags{Kubeconfig: "HOME/flags"}, want: other,
		},
		{
			name: "--context of --kubeconfig", env: []string{"mine"}, inFlagsFile: []string{"x", "other"},
			flags: target.Flags{Kubeconfig: "HOME/flags", Context: "other"}, want: other,
		},
		{
			name: "--kubeconfig without a context", inFlagsFile: []string{}, flags: target.Flags{Kubeconfig: "HOME/flags"},
			want: "the kubeconfig names no cluster that can be used: invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable",
		},
		{name: "--data-dir before $KUBECONFIG", env: []string{"mine"}, flags: target.Flags{DataDir: "HOME/data"}, want: "HOME/data"},
		{
			name: "--data-dir and --context", flags: target.Flags{DataDir: "HOME/data", Context: "mine"},
			want: "--data-dir and --ephemeral select Keelson on this host and cannot be combined with --kubeconfig or --context",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := newHome(t)
			at := func(path string) string { return strings.ReplaceAll(path, "HOME", home) }
			for path, contexts := range map[string][]string{".kube/config": test.home, "env": test.env, "flags": test.inFlagsFile} {
				if contexts != nil {
					write(t, filepath.Join(home, path), contexts...)
				}
			}
			if test.env != nil {
				t.Setenv("KUBECONFIG", filepath.Join(home, "env"))
			}
			test.flags.Kubeconfig, test.flags.DataDir = at(test.flags.Kubeconfig), at(test.flags.DataDir)
			if got := selected(t, test.flags); got != at(test.want) {
				t.Errorf("got  %s\nwant %s", got, at(test.want))
			}
		})
	}
}

// A program that only knows clusters of a kubeconfig needs a current context.
func TestWithoutHost(t *testing.T) {
	host := target.OnHost
	target.OnHost = nil
	t.Cleanup(func() { target.OnHost = host })
	home := newHome(t)
	if got := selected(t, target.Flags{}); !strings.HasPrefix(got, "the kubeconfig has no current context: select a cluster") {
		t.Errorf("without a kubeconfig: %s", got)
	}
	write(t, filepath.Join(home, ".kube/config"), "mine")
	if got := selected(t, target.Flags{}); !strings.Contains(got, "mine") {
		t.Errorf("with a context: %s", got)
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&target.Flags{}).AddFlags(fs)
	if fs.Lookup("data-dir") != nil || strings.Contains(target.Help(), "data-dir") {
		t.Error("there is --data-dir")
	}
}

// While the context of a Cluster is the current one, commands use the API that has the Cluster, unless --context says otherwise.
func TestOrigin(t *testing.T) {
	home := newHome(t)
	path := filepath.Join(home, ".kube", "config")
	for _, test := range []struct {
		api  target.API
		want string
	}{
		{target.API{Selected: target.Flags{Context: "mine"}}, "https://mine of-mine"},
		{target.API{Selected: target.Flags{DataDir: home + "/data"}}, home + "/data"},
	} {
		write(t, path, "keelson-demo", "mine")
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.SetOrigin(config.Clusters["keelson-demo"], &test.api); err != nil {
			t.Fatal(err)
		}
		writeConfig(t, config, path)
		if got := selected(t, target.Flags{}); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
		if got := selected(t, target.Flags{Context: "keelson-demo"}); got != "https://keelson-demo of-keelson-demo" {
			t.Errorf("with --context: %s", got)
		}
	}
}

// The kubeconfig of an instance is known as such, so that the error while it is stopped says how to start it. One of another user, or
// of another API at this address, is not.
func TestInstanceByKubeconfig(t *testing.T) {
	home := newHome(t)
	dir := filepath.Join(home, "data")
	if err := instance.Secure(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"state.json": `{"port":20001}`, "pki/ca.crt": "ca", "pki/admin.crt": "admin", "pki/admin.key": "key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ server, ca, crt, want string }{
		{"https://127.0.0.1:20001", "ca", "admin", dir},
		{"https://127.0.0.1:20001", "ca", "user", "https://127.0.0.1:20001 default"},
		{"https://127.0.0.1:20001", "other", "admin", "https://127.0.0.1:20001 default"},
		{"https://127.0.0.1:20002", "ca", "admin", "https://127.0.0.1:20002 default"},
	} {
		config := clientcmdapi.NewConfig()
		config.Clusters["keelson"] = &clientcmdapi.Cluster{Server: test.server, CertificateAuthorityData: []byte(test.ca)}
		config.AuthInfos["keelson"] = &clientcmdapi.AuthInfo{ClientCertificateData: []byte(test.crt), ClientKeyData: []byte("key")}
		config.Contexts["keelson"] = &clientcmdapi.Context{Cluster: "keelson", AuthInfo: "keelson"}
		config.CurrentContext = "keelson"
		path := filepath.Join(home, "kubeconfig")
		writeConfig(t, config, path)
		t.Setenv("KUBECONFIG", path)
		if got := selected(t, target.Flags{}); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
	flags := target.Flags{DataDir: dir}
	_, err := flags.API(t.Context())
	if wrong := (*usage.Error)(nil); errors.As(err, &wrong) || !strings.Contains(fmt.Sprint(err), "start it with `keelson up --data-dir "+dir) {
		t.Errorf("got %v", err)
	}
}
