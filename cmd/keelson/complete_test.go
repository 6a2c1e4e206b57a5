package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// completions runs a completion and returns what it offers; the last word is the one to complete.
func completions(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "XDG_DATA_HOME=")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") {
			found = append(found, line)
		}
	}
	return found
}

// newClient returns a client of the API server.
func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clusterv1alpha1.AddToScheme, stablev1.AddToScheme, vmv1alpha1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(env.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newObjects creates objects of each kind whose names are completed. The names of those without a namespace end with that
// of the namespace.
func newObjects(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	for _, object := range []client.Object{
		&stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backup"}},
		&vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}},
		&vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}},
		&vmv1alpha1.VirtualMachineImage{
			ObjectMeta: metav1.ObjectMeta{Name: "image-" + namespace}, Spec: vmv1alpha1.VirtualMachineImageSpec{ImageSource: vmv1alpha1.ImageSource{Path: "/nowhere/image"}},
		},
		&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + namespace}},
	} {
		if vm, ok := object.(*vmv1alpha1.VirtualMachine); ok {
			vm.Spec.Driver = "fake"
			vm.Spec.Resource.CPU.Set(1)
			vm.Spec.Resource.Memory.Set(1 << 28)
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(c.Delete(t.Context(), object)); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	namespace := env.Namespace(t)
	newObjects(t, newClient(t), namespace)
	kubeconfig := writeKubeconfig(t, env.Config(t), "")
	for _, test := range []struct {
		words  string // API stands for the flags that select the API
		prefix string // the word that is completed
		want   []string
	}{
		{"vm start -n NAMESPACE API", "", []string{"db", "web"}},
		{"vm ssh -n NAMESPACE API", "w", []string{"web"}},
		{"vm logs -n NAMESPACE API", "x", nil},
		{"vm logs -n NAMESPACE API web", "", nil}, // it takes one machine
		{"vm stop -n NAMESPACE API web", "", []string{"db"}},
		{"vm scp -n NAMESPACE API", "d", []string{"db:"}},
		{"vm create API", "", nil},
		{"vm create API --image", "image-" + namespace, []string{"image-" + namespace}},
		{"vm image rm API", "image-" + namespace, []string{"image-" + namespace}},
		{"crontab trigger -n NAMESPACE API", "", []string{"backup"}},
		{"crontab next -n NAMESPACE API", "b", []string{"backup"}},
		{"crontab list API -n", namespace, []string{namespace}},
		{"crontab list --kubeconfig FILE --context", "o", []string{"other"}},
		{"cluster create API", "", nil},
		{"cluster kubeconfig API", "cluster-" + namespace, []string{"cluster-" + namespace}},
	} {
		line := strings.NewReplacer("API", "--kubeconfig FILE --context other", "NAMESPACE", namespace).Replace(test.words)
		words := strings.Fields("__complete " + strings.ReplaceAll(line, "FILE", kubeconfig))
		got := completions(t, program(t, append(words, test.prefix)...))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.words, diff)
		}
	}
}

// An API that does not answer, or refuses, completes nothing, in bounded time and without a word.
func TestCompletionWithoutAPI(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing was sent
	unanswered := *env.Config(t)
	unanswered.Host = "https://" + silent.Addr().String()
	for name, kubeconfig := range map[string]string{
		"no answer":     writeKubeconfig(t, &unanswered, ""),
		"no permission": writeKubeconfig(t, env.Config(t), "nobody"),
		"no file":       "/nowhere",
	} {
		began := time.Now()
		cmd := program(t, "__complete", "vm", "start", "--kubeconfig="+kubeconfig, "")
		if got := completions(t, cmd); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// As kubectl-crontab the program is a plugin of kubectl.
func TestPlugin(t *testing.T) {
	namespace := env.Namespace(t)
	newObjects(t, newClient(t), namespace)
	kubeconfig := writeKubeconfig(t, env.Config(t), "")
	cmd := func(name string, args ...string) *exec.Cmd {
		cmd := program(t, args...)
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(cmd.Path, link); err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args[0] = link, link
		cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir(), "XDG_DATA_HOME=")
		return cmd
	}
	out, err := cmd("kubectl-crontab", "list", "--namespace="+namespace, "--context=other").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "backup") {
		t.Errorf("%v\n%s", err, out)
	}
	completed := completions(t, cmd("kubectl_complete-vm", "start", "--context=other", "--namespace="+namespace, ""))
	if diff := cmp.Diff([]string{"db", "web"}, completed); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	help, err := cmd("kubectl-vm", "start", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(help), "kubectl vm start NAME") {
		t.Errorf("%v\n%s", err, help)
	}
}
