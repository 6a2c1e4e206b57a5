//go:build linux

package node

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// bootingImage is a raw disk of 1 MiB whose boot sector writes to the serial console, and halts.
func bootingImage() string {
	code := "\xba\xf8\x03" // mov dx, 0x3f8
	for _, c := range []byte("It boots.\n") {
		code += "\xb0" + string([]byte{c}) + "\xee" // mov al, c; out dx, al
	}
	code += "\xf4\xeb\xfd" // hlt; jmp to it
	return code + strings.Repeat("\x00", 510-len(code)) + "\x55\xaa" + strings.Repeat("\x00", 1<<20-512)
}

// imageInPod creates a machine whose image is downloaded: the server breaks off in the middle, and the next attempt resumes.
func imageInPod(t *testing.T, u *user) {
	image, next, resumed := bootingImage(), make(chan struct{}), make(chan string, 10)
	at, _ := u.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get("Range"); from != "" {
			resumed <- from
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(image))
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(image)))
		_, _ = io.WriteString(w, image[:len(image)/2])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-next:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}), false)
	sum := sha256.Sum256([]byte(image))
	u.apply(t, `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: vm}
spec:
  driver: pod
  terminationGracePeriodSeconds: 1 # it ignores the power button
  resource: {cpu: 1, memory: 64Mi, rootDisk: 8Mi}
  image: {url: "http://`+at+`/disk.img", sha256: `+hex.EncodeToString(sum[:])+`, agent: false}
`)
	message := []string{"kubectl", "get", "virtualmachine/vm", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`}
	has := func(text string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, text) }
	}
	u.Until(t, "the condition has the progress", has("50 % of 1 MiB"), message...)
	close(next)
	u.Until(t, "the condition has the failure", has("import the image http://"+at), message...)
	u.awaitMachine(t)
	if from := <-resumed; from != "bytes="+strconv.Itoa(len(image)/2)+"-" {
		t.Errorf("the next attempt requested %q", from)
	}
	u.Until(t, "the image boots", has("It boots."), "kubectl", "logs", "--selector", ofMachines)
	u.restart(t)
	if len(resumed) > 0 {
		t.Error("the next run downloads the image again")
	}
	transcript.Contains(t, u.field(t, "virtualmachine/vm", `{.status.conditions[?(@.type=="Ready")].reason}`), "Running")
	deleteInPod(t, u)
}
