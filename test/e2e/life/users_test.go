package life

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A user with only the role edit reaches the machines of a namespace, also after the manager was killed. A user without a role
// reaches none.
func TestLongAccessOfUsers(t *testing.T) {
	for _, program := range []string{"qemu-system-x86_64", "ssh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v", err)
		}
	}
	if _, err := env.Binary("guest/guest.json"); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
	t.Parallel()
	m := newMachine(t)
	up := []string{"keelson", "up", "--detach", "--node=simulated", "--vm-driver=qemu"}
	m.OK(t, up...)
	t.Cleanup(func() { m.OK(t, "keelson", "down", "--delete-data") })
	admin := m.withCluster()
	admin.OK(t, "kubectl", "apply", "-f", filepath.Join("..", "..", "..", "config", "rbac", "aggregated.yaml"))
	admin.OK(t, "kubectl", "create", "namespace", "team")
	editor, stranger := newUser(t, admin, "editor"), newUser(t, admin, "stranger")
	admin.OK(t, "kubectl", "create", "rolebinding", "editor", "--clusterrole=edit", "--serviceaccount=team:editor", "--namespace=team")
	aggregated := func(role string) bool { return strings.Contains(role, "virtualmachines/console") }
	admin.Until(transcript.Quietly(t), "the role is aggregated", aggregated, "kubectl", "get", "clusterrole", "edit", "-o", "yaml")

	create := vm("create", "web", "--display=VGA", "--wait")
	transcript.Contains(t, stranger.Fails(t, 1, create...), "forbidden")
	editor.OK(t, create...)
	admin.OK(t, "keelson", "cluster", "create", "demo", "--wait", "--kubeconfig", admin.Env["KUBECONFIG"])

	t.Run("edit", func(t *testing.T) { reaches(t, editor, "typed") })
	t.Run("none", func(t *testing.T) { reachesNothing(t, stranger) })
	t.Run("the proxy of a Cluster", func(t *testing.T) {
		for _, user := range []transcript.Shell{editor, stranger} {
			refused := user.Fails(t, 1, "kubectl", "get", "--raw", "/apis/access.cloudnative.tw/v1alpha1/clusters/demo/proxy/version")
			transcript.Contains(t, refused, `cannot get resource "clusters/proxy"`)
		}
	})
	t.Run("the manager is killed", func(t *testing.T) {
		console := editor.StartOnTerminal(t, 120, vm("serial", "web")...)
		console.Await(t, "Connected to the console of web")
		console.Type(t, "\recho before-$((40+2))\r")
		console.Await(t, "before-42")
		forward := editor.Start(t, vm("port-forward", "web", "0:22")...)
		forward.Await(t, "Forwarding 127.0.0.1:")
		port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(forward.Text())[1]
		logs := editor.Start(t, vm("logs", "web", "--follow")...)
		logs.Await(t, "before-42")
		kill(t, m.status(t).ManagerPID)
		m.OK(t, up...)
		console.Await(t, "The connection is lost")
		transcript.Eventually(t, "the console is connected again", func() bool { return strings.Count(console.Text(), "Connected to") == 2 })
		console.Type(t, "\recho after-$((40+2))\r")
		console.Await(t, "after-42")
		transcript.Contains(t, transcript.Banner(t, "127.0.0.1:"+port), "SSH-2.0-") // the forwarding goes on
		if result := logs.Wait(t); result.Code != 1 {
			t.Errorf("the log ended with %d, want 1", result.Code)
		}
		transcript.Contains(t, logs.Text(), "the connection to the log of web is lost")
		if lost := strings.Count(console.Text(), "The connection is lost"); lost != 1 {
			t.Errorf("the console has said %d times that the connection is lost", lost)
		}
		console.Type(t, "\x1d")
		if result := console.Wait(t); result.Code != 0 {
			t.Errorf("the console ended with %d", result.Code)
		}
		reaches(t, editor, "again")
		reachesNothing(t, stranger)
	})
}

// newUser returns a user who has a kubeconfig, and no permission.
func newUser(t *testing.T, admin transcript.Shell, name string) transcript.Shell {
	t.Helper()
	admin.OK(t, "kubectl", "create", "serviceaccount", name, "--namespace=team")
	token := strings.TrimSpace(admin.OK(transcript.Quietly(t), "kubectl", "create", "token", name, "--namespace=team"))
	config, err := os.ReadFile(admin.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	user := transcript.Shell{Env: map[string]string{"HOME": home, "KUBECONFIG": filepath.Join(home, "kubeconfig")}}
	if err := os.WriteFile(user.Env["KUBECONFIG"], config, 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := transcript.Quietly(t)
	user.OK(quiet, "kubectl", "config", "delete-user", "keelson")
	user.OK(quiet, "kubectl", "config", "set-credentials", "keelson", "--token="+token)
	user.OK(quiet, "kubectl", "config", "set-context", "--current", "--namespace=team")
	return user
}

// vm returns a command for a machine of the current context.
func vm(verb string, args ...string) []string {
	return append([]string{"keelson", "vm", verb, "--context=keelson"}, args...)
}

// reaches checks that a user reaches the machine web in all ways. The console shows what was typed before, so each call has another word.
func reaches(t *testing.T, user transcript.Shell, word string) {
	t.Helper()
	transcript.Contains(t, user.OK(t, vm("ssh", "web", "--", "echo on-$(hostname)")...), "on-web")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("copied-42"), 0o600); err != nil {
		t.Fatal(err)
	}
	user.OK(t, vm("scp", file, "web:/root/")...)
	user.OK(t, vm("scp", "web:/root/file", file+".back")...)
	if back, err := os.ReadFile(file + ".back"); err != nil || string(back) != "copied-42" {
		t.Errorf("the copied file is %q, %v", back, err)
	}

	console := user.StartOnTerminal(t, 120, vm("serial", "web")...)
	console.Await(t, "Connected to the console of web")
	console.Type(t, "\recho "+word+"-$((40+2))\r")
	console.Await(t, word+"-42")
	console.Type(t, "\x1d")
	if result := console.Wait(t); result.Code != 0 {
		t.Errorf("the console ended with %d", result.Code)
	}

	forward := user.Start(t, vm("port-forward", "web", "0:22")...)
	forward.Await(t, "Forwarding 127.0.0.1:")
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(forward.Text())[1]
	transcript.Contains(t, transcript.Banner(t, "127.0.0.1:"+port), "SSH-2.0-")
	forward.Signal(t, os.Interrupt)
	forward.Wait(t)

	picture := filepath.Join(t.TempDir(), "web.png")
	user.OK(t, vm("screenshot", "web", "-o", picture)...)
	if content, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(content, []byte("\x89PNG")) {
		t.Errorf("the screenshot has %d bytes, %v", len(content), err)
	}
	transcript.Contains(t, user.OK(t, vm("logs", "web", "--tail=50")...), word+"-42")
	user.Until(t, "its usage is measured", func(text string) bool { return strings.Contains(text, "CPU") }, vm("usage", "web")...)
	transcript.Contains(t, user.OK(t, vm("list")...), "web", "Running")
}

// reachesNothing checks that a user reaches the machine web in no way, and is told so.
func reachesNothing(t *testing.T, user transcript.Shell) {
	t.Helper()
	for _, words := range [][]string{
		vm("ssh", "web", "--", "true"), vm("scp", "web:/root/file", t.TempDir()), vm("serial", "web"), vm("port-forward", "web", "0:22"),
		vm("screenshot", "web", "-o", filepath.Join(t.TempDir(), "web.png")), vm("logs", "web"), vm("usage", "web"), vm("list"),
	} {
		result := user.Run(t, words...)
		if result.Code == 0 || !strings.Contains(result.Stderr, "forbidden") {
			t.Errorf("%v: exit code %d, %q", words, result.Code, result.Stderr)
		}
	}
}
