//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func cronTab(t *testing.T, u *user) {
	const manifest = `apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: %s}
spec:
  schedule: "@every 1s"
  timeZone: Asia/Kathmandu
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: job
            image: app:v1
            args: %s
            env:
            - name: JOB
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
            - name: SCHEDULED
              valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/cronjob-scheduled-timestamp']"}}
`
	u.apply(t, fmt.Sprintf(manifest, "tick", "[env, JOB, SCHEDULED]"))
	u.Until(t, "a run has succeeded", transcript.Not(""), "kubectl", "get", "crontab", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}")
	succeeded := strings.Fields(u.field(t, "jobs", `{.items[?(@.status.succeeded==1)].metadata.name}`))
	job := succeeded[len(succeeded)-1] // the earlier ones are deleted soon
	annotated := u.field(t, "job/"+job, `{.metadata.annotations.batch\.kubernetes\.io/cronjob-scheduled-timestamp}`)
	nominal, err := time.Parse(time.RFC3339, annotated)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(annotated, "+05:45") {
		t.Errorf("the time %s is not in the time zone of the CronTab", annotated)
	}
	if got, want := u.kubectl(t, "logs", "job/"+job), fmt.Sprintf("JOB=tick-%d\nSCHEDULED=%s\n", nominal.Unix(), annotated); got != want {
		t.Errorf("the Job of %s printed %q, want %q", annotated, got, want)
	}
	u.kubectl(t, "delete", "crontab", "tick")

	u.apply(t, fmt.Sprintf(manifest, "broken", "[fail]"))
	u.Until(t, "a run has failed", transcript.Is("Failed"), "kubectl", "get", "crontab", "broken", "-o", "jsonpath={.status.lastRun.result}")
	u.kubectl(t, "delete", "crontab", "broken")
}

// replace has runs that end only on request, and slowly. Each records its begin and end in a shared
// folder of the machine, and whether it was alone.
func replace(t *testing.T, u *user) {
	folder := t.TempDir()
	u.apply(t, fmt.Sprintf(`apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: turn}
spec:
  schedule: "@every 5s"
  concurrencyPolicy: Replace
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        metadata: {labels: {app: turn}}
        spec:
          restartPolicy: Never
          containers:
          - {name: turn, image: "app:v1", args: [turn, /protocol], volumeMounts: [{name: protocol, mountPath: /protocol}]}
          volumes:
          - {name: protocol, hostPath: {path: %q, type: Directory}}
`, folder))
	const turns = 2
	var lines []string
	transcript.Eventually(t, "runs have replaced each other", func() bool {
		text, err := os.ReadFile(filepath.Join(folder, "turns"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return len(lines) > 2*turns
	})
	u.kubectl(t, "delete", "crontab", "turn")
	u.Until(t, "nothing is left of it", transcript.Is(""), "kubectl", "get", "pods", "-l", "app=turn", "-o", "name")

	t.Logf("output of the runs:\n%s", strings.Join(lines, "\n"))
	seen := map[string]bool{}
	for i := 0; i < 2*turns; i += 2 {
		name, begun := strings.CutPrefix(lines[i], "begin ")
		if !begun || lines[i+1] != "end "+name || seen[name] {
			t.Errorf("run %d has not ended before the next one:\n%s", i/2, strings.Join(lines, "\n"))
		}
		seen[name] = true
	}
}
