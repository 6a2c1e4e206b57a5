package install

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// Images of docs/install.md.
const image, kubeImage = "images.example/keelson:v1", "images.example/keelson-kube:v1"

// The contents of the images, and the manager in a container like the Pod of the installation: as
// the user of the image, with a read-only root file system, without capabilities, with the token of
// its service account.
func TestLongImage(t *testing.T) {
	t.Parallel()
	images := newRegistry(t)
	e := newEngine(t, images)
	c := newCheckout(t, e.variables()...)
	c.types(t, installPage, imageSection, 0)
	if diff := cmp.Diff([]string{kubeImage, image}, images.pushed()); diff != "" {
		t.Errorf("images in the registry (-want +got):\n%s", diff)
	}
	transcript.Contains(t, c.types(t, installPage, imageSection, 1), "Client Version: v1.")
	if got, want := e.run(t, "docker", "inspect", "--format", "{{.Config.User}} {{.Config.Entrypoint}} {{len .RootFS.Layers}}", image), "65532:65532 [/keelson] 2\n"; got != want {
		t.Errorf("image is %q, want %q", got, want)
	}
	transcript.Contains(t, e.run(t, "docker", "run", "--rm", "--network=none", image, "version"), "keelson    ", "platform   linux/")
	transcript.Contains(t, e.run(t, "docker", "run", "--rm", "--network=none", kubeImage, "kube-apiserver", "--version"), "Kubernetes v1.")

	// Outside of a cluster, the error names what is missing.
	out, err := e.command(t, "docker", "run", "--rm", "--network=none", image).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "name another with --kubeconfig, $KUBECONFIG or a context of it") {
		t.Errorf("a manager without a cluster: %v\n%s", err, out)
	}

	w := newWorld(t)
	w.kubectl(t, "apply", "--server-side", "-k", overlayIn(t, allSwitchedOn))
	w.kubectl(t, "scale", "deployment/keelson-manager", "--namespace", home, "--replicas", "0") // its Pods are simulated anyway
	address, err := url.Parse(w.admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	webhook := harness.FreeAddress(t).String()
	w.callDirectly(t, "keelson", webhook)
	volumes := t.TempDir()
	id := strings.TrimSpace(e.run(t, append([]string{
		"docker", "run", "--detach", "--network=host", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		"--volume", w.serviceAccount(t) + ":/var/run/secrets/kubernetes.io/serviceaccount:ro",
		"--env", "KUBERNETES_SERVICE_HOST=" + address.Hostname(), "--env", "KUBERNETES_SERVICE_PORT=" + address.Port(),
	}, slices.Concat(w.limits(t), w.volumes(t, volumes), e.socket(t), []string{image}, w.args(t, webhook),
		[]string{"--vm-driver=qemu,docker", "--vm-docker-host=" + socketInside})...)...))
	defer func() {
		if t.Failed() {
			e.run(t, "docker", "logs", id)
		}
	}()
	transcript.Eventually(t, "the manager is ready", func() bool {
		logs, err := e.command(t, "docker", "logs", id).CombinedOutput()
		return err == nil && strings.Contains(string(logs), "Manager is ready")
	})
	idle := memoryOf(t, id)
	w.inAPod(t)
	w.keepsStateOfMachines(t, filepath.Join(volumes, "state", "containers"))
	w.isEnough(t, id, idle)
	if out := e.run(t, "docker", "stop", "-t", "30", id); strings.TrimSpace(out) != id {
		t.Errorf("docker stop: %s", out)
	}
	if code := strings.TrimSpace(e.run(t, "docker", "inspect", "--format", "{{.State.ExitCode}}", id)); code != "0" {
		t.Errorf("the manager ended with exit code %s", code)
	}
	if killed := strings.TrimSpace(e.run(t, "docker", "inspect", "--format", "{{.State.OOMKilled}}", id)); killed != "false" {
		t.Errorf("OOM killed: %s", killed)
	}
	if holder := w.kubectl(t, "get", "lease", "keelson", "--namespace", home, "-o", "jsonpath={.spec.holderIdentity}"); holder != "" {
		t.Errorf("the lease is still held by %q", holder)
	}
}

// serviceAccount writes the service account files of a Pod of the installation, and returns the
// directory.
func (w *world) serviceAccount(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keelson-account")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	token := w.OK(transcript.Quietly(t), "kubectl", "create", "token", account, "--namespace", home, "--duration", "1h")
	for name, content := range map[string]string{"token": token, "namespace": home, "ca.crt": string(w.authority(t))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// args are the flags of the Deployment, with free ports instead of the Pod's, and this address of
// the webhook.
func (w *world) args(t *testing.T, webhook string) []string {
	t.Helper()
	args := strings.Fields(w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home,
		"-o", `jsonpath={range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}`))
	for i, arg := range args {
		switch flag, _, _ := strings.Cut(arg, "="); flag {
		case "--health-probe-bind-address", "--metrics-bind-address":
			args[i] = flag + "=" + harness.FreeAddress(t).String()
		case "--webhook-bind-address":
			args[i] = flag + "=" + webhook
		case "--access-bind-address":
			args[i] = flag + "=" + hostAddress(t)
		}
	}
	return args
}

// limits are the docker flags for the memory limit of the Deployment and for the variables that
// pass it to Go.
func (w *world) limits(t *testing.T) []string {
	t.Helper()
	_, limit := w.resources(t)
	flags := []string{"--memory", strconv.FormatInt(limit, 10)}
	variables := w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home,
		"-o", `jsonpath={range .spec.template.spec.containers[0].env[?(@.value)]}{.name}={.value}{"\n"}{end}`)
	for variable := range strings.FieldsSeq(variables) {
		flags = append(flags, "--env", strings.ReplaceAll(variable, "$(MEMORY_LIMIT_MIB)", strconv.FormatInt(limit>>20, 10)))
	}
	return flags
}

// volumes are the docker flags for the volumes of the Deployment. They become directories in dir
// that, like an emptyDir, are writable for the Pod's group.
func (w *world) volumes(t *testing.T, dir string) []string {
	t.Helper()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // accessible to the user of the image
		t.Fatal(err)
	}
	var flags []string
	for mount := range strings.FieldsSeq(w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home,
		"-o", `jsonpath={range .spec.template.spec.containers[0].volumeMounts[*]}{.name}:{.mountPath}{"\n"}{end}`)) {
		name, _, _ := strings.Cut(mount, ":")
		volume := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(volume, 0o777), os.Chmod(volume, 0o777|os.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--volume", filepath.Join(dir, mount))
	}
	return flags
}

// keepsStateOfMachines checks that a manager with a Docker engine can write its record of a
// machine. The image does not exist: the engine has the host's network, and must not run machines.
func (w *world) keepsStateOfMachines(t *testing.T, dir string) {
	t.Helper()
	w.apply(t, "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: on-engine, namespace: work}, "+
		"spec: {driver: docker, image: {container: images.example/absent:v1}}}")
	get := func(path string) string {
		return w.OK(transcript.Quietly(t), "kubectl", "get", "virtualmachine/on-engine", "--namespace", "work", "-o", "jsonpath="+path)
	}
	transcript.Eventually(t, "the engine was requested to pull the image", func() bool {
		return strings.Contains(get(`{.status.conditions[?(@.type=="Ready")].message}`), "images.example/absent:v1")
	})
	record := filepath.Join(dir, get("{.metadata.uid}")+".json")
	if _, err := os.Stat(record); err != nil {
		t.Error(err)
	}
	w.kubectl(t, "delete", "virtualmachine/on-engine", "--namespace", "work", "--timeout", transcript.WaitTimeout.String())
	if _, err := os.Stat(record); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state of a deleted machine: %v", err)
	}
}

// inAPod checks which kinds work in a Pod, and that the others fail with an error.
func (w *world) inAPod(t *testing.T) {
	t.Helper()
	w.namespace(t, "work")
	in := func(words ...string) string {
		return w.kubectl(t, append([]string{"--namespace", "work"}, words...)...)
	}
	in("wait", "--for=create", "serviceaccount/default", "--timeout", transcript.WaitTimeout.String()) // otherwise no Pod is admitted
	for _, name := range []string{"foo.yaml", "sampleresource.yaml", "crontab-backup.yaml", "virtualmachine.yaml", "cluster.yaml"} {
		in("create", "-f", filepath.Join("..", "..", "examples", "manifests", name))
	}
	for _, object := range []string{"foo/example-foo", "sampleresource/example-sample", "crontab/backup"} {
		in("wait", "--for=condition=Ready", object, "--timeout", transcript.WaitTimeout.String())
	}
	for object, condition := range map[string]string{"virtualmachine/test-vm": "Ready", "cluster/demo": "Provisioned"} {
		in("wait", "--for=condition="+condition+"=False", object, "--timeout", transcript.WaitTimeout.String())
		message := in("get", object, "-o", `jsonpath={.status.conditions[?(@.type=="`+condition+`")].message}`)
		transcript.Contains(t, message, "runs in a Pod", "--controllers=")
	}
	in("delete", "virtualmachine/test-vm", "cluster/demo", "--timeout", transcript.WaitTimeout.String())
	in("delete", "foo,sampleresource,crontab", "--all")
}
