//go:build linux

package node

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// limits runs Pods concurrently, each of which uses as much as it can of one resource.
func limits(t *testing.T, u *user) {
	const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  containers:
  - {name: %[1]s, image: "app:v1", args: [%[1]s], resources: {limits: {%[2]s}}}
`
	u.apply(t, fmt.Sprintf(manifest, "hog", "memory: 64Mi")+"---\n"+fmt.Sprintf(manifest, "spin", "cpu: 100m")+
		"---\n"+fmt.Sprintf(manifest, "crowd", ""))
	for pod, end := range map[string]string{"hog": "OOMKilled 137", "spin": "Completed 0", "crowd": "Error 2"} {
		u.Until(t, pod+" has ended", transcript.Is(end), "kubectl", "get", "pod", pod, "-o",
			"jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}")
	}
	// A tenth of two seconds, and up to one period more at the begin and at the end.
	used, err := strconv.Atoi(strings.TrimSpace(u.kubectl(t, "logs", "spin")))
	if err != nil || used > 600 {
		t.Errorf("with a tenth of a processor it got %d ms of 2 s, %v", used, err)
	}
	// The limit of a Pod is 4096 threads, including the sandbox process.
	transcript.Contains(t, u.kubectl(t, "logs", "crowd", "--limit-bytes=1000"), "failed to create new OS thread (have 40")
	u.kubectl(t, "delete", "pod", "hog", "spin", "crowd")
}
