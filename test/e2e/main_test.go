// Package e2e has transcripts: kubectl commands of a user, and their expected results. They run on
// a control plane that `keelson up --detach` starts, or on the cluster of the kubeconfig in
// KEELSON_E2E_KUBECONFIG, which must have a manager. If that manager runs on this host,
// KEELSON_E2E_STATE is its state directory. If it works in some namespaces only, they exist already
// and KEELSON_E2E_SUFFIX is the suffix of their names. If it must have a webhook,
// KEELSON_E2E_WEBHOOK is the name of the ValidatingWebhookConfiguration. test/install runs those whose names begin with TestSmoke on such a
// cluster, in CI as well.
//
// "Soon", in the transcripts, means within a second on an idle machine. The tests wait longer, and
// log the actual time.
package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/testing/browser"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// kubeconfigVariable is the environment variable with the kubeconfig of an existing cluster.
const kubeconfigVariable = "KEELSON_E2E_KUBECONFIG"

var (
	// kubeconfig is the kubeconfig of the cluster under test.
	kubeconfig = os.Getenv(kubeconfigVariable)
	// stateDir is the state directory of the manager; empty if it runs on another host.
	stateDir = os.Getenv("KEELSON_E2E_STATE")
	// suffix is the suffix of the names of existing namespaces; empty if the transcripts create
	// theirs.
	suffix = os.Getenv("KEELSON_E2E_SUFFIX")
	// webhook is the name of the required ValidatingWebhookConfiguration; empty if there may be
	// none.
	webhook = os.Getenv("KEELSON_E2E_WEBHOOK")
)

func TestMain(m *testing.M) {
	flag.Parse() // run needs -v
	code, err := run(m)
	browser.Stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs the tests on a cluster.
func run(m *testing.M) (code int, err error) {
	if kubeconfig != "" {
		return m.Run(), nil
	}
	place, err := os.MkdirTemp("", "keelson-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
	data := filepath.Join(place, "data")
	rke := filepath.Join(place, "rke") // its stand-in
	if out, err := exec.Command("go", "build", "-o", rke, "github.com/keelson-dev/keelson/test/rke").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the stand-in for rke: %w\n%s", err, out)
	}
	out, err := keelson(place, "up", "--ephemeral", "--detach", "--node=simulated", "--data-dir", data, "--vm-driver=qemu,fake", "--rke-binary", rke)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, down(place, data)) }() // before the directory is removed, also after a panic
	if testing.Verbose() {
		fmt.Print(out)
	}
	kubeconfig, stateDir, webhook = filepath.Join(data, "kubeconfig"), data, "keelson"
	return m.Run(), nil
}

// down stops the control plane, and checks for leftovers.
func down(home, data string) error {
	if _, err := keelson(home, "down", "--data-dir", data); err != nil {
		return err
	}
	var err error
	if left := transcript.Left(data); len(left) > 0 {
		err = fmt.Errorf("leaked processes after keelson down:\n%s", strings.Join(left, "\n"))
	}
	if _, statErr := os.Stat(data); statErr == nil {
		err = errors.Join(err, errors.New("leftover ephemeral data after keelson down"))
	}
	return err
}

// keelson runs bin/keelson with this home directory and returns its output.
func keelson(home string, args ...string) (string, error) {
	path, err := env.Binary("keelson")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("keelson %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// session is a user with kubectl in a namespace.
type session struct {
	transcript.Shell
	namespace string
}

// newSession returns a session in a new namespace. At its end the test checks the status of every
// Keelson object in it; there must be at least one.
func newSession(t *testing.T) session {
	t.Helper()
	s := shell(t)
	s.namespace = "e2e-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + "-" + suffix
	if suffix == "" {
		s.namespace += strconv.Itoa(os.Getpid())
		s.OK(t, "kubectl", "create", "namespace", s.namespace)
	}
	t.Cleanup(func() {
		if suffix != "" {
			// The namespace would take along the Roles that the manager needs to clean up.
			s.kubectl(t, "delete", "foos,sampleresources,crontabs,virtualmachinesets,virtualmachines,virtualdisks,virtualmachinesnapshots", "--all")
			return
		}
		s.OK(t, "kubectl", "delete", "namespace", s.namespace, "--wait=false")
	})
	t.Cleanup(func() { s.checkStatuses(t) })
	return s
}

// shell returns a session in the namespace default, for commands that change nothing.
func shell(t *testing.T) session {
	return session{
		Shell:     transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}},
		namespace: "default",
	}
}

// kubectl runs a command that must succeed and returns its output.
func (s session) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return s.OK(t, s.words(args)...)
}

// until repeats a command until it succeeds and done accepts its output.
func (s session) until(t *testing.T, what string, done func(string) bool, args ...string) string {
	t.Helper()
	return s.Until(t, what, done, s.words(args)...)
}

// wait runs kubectl wait: until an object exists, is deleted, or has a condition.
func (s session) wait(t *testing.T, condition, object string) {
	t.Helper()
	s.kubectl(t, "wait", "--for="+condition, object, "--timeout", transcript.WaitTimeout.String())
}

func (s session) words(args []string) []string {
	return append([]string{"kubectl", "--namespace", s.namespace}, args...)
}

// field reads fields of an object by a JSONPath template.
func (s session) field(t *testing.T, object, template string) string {
	t.Helper()
	return s.kubectl(t, "get", object, "-o", "jsonpath="+template)
}

// untilField waits until fields of an object have a value.
func (s session) untilField(t *testing.T, object, template, want string) {
	t.Helper()
	s.until(t, fmt.Sprintf("%q", want), transcript.Is(want), "get", object, "-o", "jsonpath="+template)
}

// checkStatuses waits until every Keelson object has settled, and fails if a status stays invalid.
func (s session) checkStatuses(t *testing.T) {
	t.Helper()
	if t.Failed() {
		s.describeFailure(t)
		return
	}
	var problems []string
	settled := func(stdout string) bool {
		var list unstructured.UnstructuredList
		if err := json.Unmarshal([]byte(stdout), &list); err != nil {
			t.Fatalf("kubectl get -o json: %v", err)
		}
		problems = nil
		if len(list.Items) == 0 {
			problems = []string{"no object to check the status of"}
		}
		for i := range list.Items {
			problems = append(problems, statuscheck.Problems(&list.Items[i])...)
		}
		return len(problems) == 0
	}
	defer func() {
		if t.Failed() { // timeout
			t.Errorf("invalid statuses:\n%s", strings.Join(problems, "\n"))
		}
	}()
	s.until(t, "every status is valid", settled, "get", "keelson", "-o", "json")
}

// describeFailure prints what may say why a test has failed: the conditions of all objects, and the last lines of guests.
func (s session) describeFailure(t *testing.T) {
	t.Helper()
	s.Run(t, s.words([]string{"get", "keelson", "-o", "yaml"})...)
	machines := s.Run(t, s.words([]string{"get", "vm", "-o", "jsonpath={.items[*].metadata.name}"})...)
	for _, name := range strings.Fields(machines.Stdout) {
		s.Run(t, "keelson", "vm", "logs", name, "--kubeconfig", kubeconfig, "--namespace", s.namespace, "--tail", "30")
	}
}

// manifest returns the path of an example manifest.
func manifest(name string) string { return filepath.Join("..", "..", "examples", "manifests", name) }
