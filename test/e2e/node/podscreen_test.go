//go:build linux

package node

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// screenInPod gives the machine a display, which it keeps: so it sleeps with one, too.
func screenInPod(t *testing.T, u *user) {
	picture := filepath.Join(t.TempDir(), "vm.png")
	screenshot := []string{"keelson", "vm", "screenshot", "vm", "--kubeconfig", u.Env["KUBECONFIG"], "-o", picture}
	transcript.Contains(t, u.Fails(t, 1, screenshot...), "has no display: set spec.display.type to VGA")
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"display":{"type":"VGA"}}}`)
	u.kubectl(t, "wait", "virtualmachine/vm", "--for=condition=RestartRequired", "--timeout", transcript.WaitTimeout.String())
	transcript.Contains(t, u.Fails(t, 1, screenshot...), "was started without a display: restart it")
	u.restart(t)
	u.OK(t, screenshot...)
	if content, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(content, []byte("\x89PNG")) {
		t.Errorf("the screenshot has %d bytes, %v", len(content), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", u.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	screen, err := client.Dial(t.Context(), config, "default", "vm", client.Screen, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.CloseNow() //nolint:errcheck // it may be closed
	if _, message, err := screen.Read(t.Context()); err != nil || !bytes.HasPrefix(message, []byte("RFB ")) {
		t.Errorf("the VNC server greets with %q, %v", message, err)
	}
}
