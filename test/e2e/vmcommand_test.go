package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/browser"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A user reaches a machine through the Kubernetes API: by ssh, at its console, at a port, and its log.
func TestLongAccessByCommand(t *testing.T) {
	needQEMU(t)
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	t.Parallel()
	s := newSession(t)
	vm := func(verb, name string, args ...string) []string {
		words := []string{"keelson", "vm", verb, name, "--kubeconfig", kubeconfig, "--namespace", s.namespace}
		return append(words, args...)
	}
	s.OK(t, vm("create", "web")...)
	// It waits for the machine.
	transcript.Contains(t, s.OK(t, vm("ssh", "web", "--", "echo on-$(hostname)")...), "on-web")
	if result := s.Run(t, vm("ssh", "web", "--", "exit 7")...); result.Code != 7 {
		t.Errorf("the exit code of ssh is %d, want 7", result.Code)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("copied-42"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.OK(t, append([]string{"keelson", "vm", "scp", file, "web:/root/"}, vm("", "")[4:]...)...)
	transcript.Contains(t, s.OK(t, vm("ssh", "web", "--", "cat /root/file")...), "copied-42")

	console := s.StartOnTerminal(t, 120, vm("serial", "web")...)
	console.Await(t, "root@web")
	console.Type(t, "\recho typed-$((40+2))\r")
	console.Await(t, "typed-42")

	// A second console writes, and the first one is told so.
	second := s.StartOnTerminal(t, 120, vm("serial", "web")...)
	second.Await(t, "typed-42")
	second.Type(t, "\recho again-$((40+2))\r")
	for _, c := range []*transcript.Terminal{console, second} {
		c.Await(t, "again-42")
	}
	for _, c := range []*transcript.Terminal{second, console} {
		c.Type(t, "\x1d")
		if result := c.Wait(t); result.Code != 0 {
			t.Errorf("a console ended with %d", result.Code)
		}
	}

	forward := s.Start(t, vm("port-forward", "web", "0:22")...)
	forward.Await(t, "Forwarding 127.0.0.1:")
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(forward.Text())[1]
	transcript.Contains(t, transcript.Banner(t, "127.0.0.1:"+port), "SSH-2.0-")

	transcript.Contains(t, s.OK(t, vm("logs", "web", "--tail", "50")...), "again-42")

	// It goes on where it was.
	s.OK(t, vm("ssh", "web", "--", "(exec sleep 1000 >/dev/null 2>&1 </dev/null) & cat /proc/sys/kernel/random/boot_id >/tmp/boot")...)
	s.OK(t, vm("sleep", "web", "--wait")...)
	transcript.Contains(t, s.OK(t, append([]string{"keelson", "vm", "list"}, vm("", "")[4:]...)...), "web", "Asleep")
	s.OK(t, vm("wake", "web", "--wait")...)
	transcript.Contains(t, s.OK(t, vm("ssh", "web", "--", "cmp /tmp/boot /proc/sys/kernel/random/boot_id && pidof sleep && echo goes-on")...), "goes-on")
	s.OK(t, vm("restart", "web", "--wait")...)
	s.OK(t, vm("stop", "web", "--wait")...)
	transcript.Contains(t, s.OK(t, append([]string{"keelson", "vm", "list"}, vm("", "")[4:]...)...), "web", "Stopped")
	if result := s.Run(t, vm("logs", "nobody")...); result.Code != 1 || !strings.Contains(result.Stderr, "nobody") {
		t.Errorf("the log of no machine: %+v", result)
	}
}

// A person opens the page of a machine in a browser, and types into its console.
func TestLongAccessByConsole(t *testing.T) {
	needQEMU(t)
	s := newSession(t)
	served := s.Start(t, "keelson", "console", "--kubeconfig", kubeconfig)
	served.Await(t, "#token=")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\S+`).FindString(served.Text())
	s.OK(t, "keelson", "vm", "create", "web", "--kubeconfig", kubeconfig, "--namespace", s.namespace, "--wait")
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(url, "/#", "/virtualmachines/"+s.namespace+"/web#", 1))
	b.Unfold("Serial console")
	b.Until(`!!document.querySelector(".xterm-rows")?.textContent.includes("built-in shell")`)
	b.Type("\recho typed-$((40+2))\r")
	b.Until(`document.querySelector(".xterm-rows").textContent.includes("typed-42")`)
	b.Keep("machine-terminal")
	b.Unfold("Serial console") // closes it
	b.Unfold("Usage in the last hour")
	b.Until(`document.querySelectorAll("figure canvas").length === 4`)
	b.Unfold("Serial log")
	b.Sees("typed-42")
	s.OK(t, "keelson", "vm", "stop", "web", "--kubeconfig", kubeconfig, "--namespace", s.namespace, "--wait")
	b.Unfold("Serial console")
	b.Sees("is not running")
}
