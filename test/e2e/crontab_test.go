package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	minimalCronTab = "crontab/test"
	backupCronTab  = "crontab/backup"
	readyReason    = `{.status.conditions[?(@.type=="Ready")].reason}`
)

// jobs returns the Jobs of the namespace, by their names.
func (s session) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	var list batchv1.JobList
	if err := json.Unmarshal([]byte(s.kubectl(t, "get", "jobs", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

func TestSmokeCronTab(t *testing.T) {
	t.Parallel()
	s := newSession(t)

	// An empty spec is reported as having no schedule.
	s.kubectl(t, "create", "-f", manifest("crontab-minimal.yaml"))
	s.untilField(t, minimalCronTab, readyReason, "NoSchedule")

	// The next run is at midnight.
	s.kubectl(t, "create", "-f", manifest("crontab-backup.yaml"))
	s.wait(t, "condition=Ready", backupCronTab)
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Format(time.RFC3339)
	lines := strings.Split(strings.TrimSpace(s.kubectl(t, "get", "ct", "backup")), "\n")
	if got, want := strings.Join(strings.Fields(lines[0]), " "), "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST LAST RESULT NEXT READY AGE"; got != want {
		t.Errorf("columns are %q, want %q", got, want)
	}
	row := strings.Fields(lines[1])
	if got, want := strings.Join(row[:len(row)-1], " "), "backup @daily false "+midnight+" True"; got != want {
		t.Errorf("kubectl get ct shows %q, want %q", got, want)
	}

	// Run on demand.
	asked := time.Now().UTC().Truncate(time.Second)
	s.kubectl(t, "patch", backupCronTab, "--type=merge", "-p", `{"spec":{"runRequestedAt":"`+asked.Format(time.RFC3339)+`"}}`)
	job := fmt.Sprintf("job/backup-%d", asked.Unix())
	s.wait(t, "create", job)
	s.untilField(t, job,
		"{.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name} {.spec.template.spec.containers[*].name} {.spec.template.spec.containers[*].image} {.spec.template.spec.restartPolicy}",
		"CronTab backup backup mybackupscript:v9 Never")
	s.wait(t, "condition=Complete", job)
	s.untilField(t, backupCronTab, "{.status.lastRunRequestedAt}{.status.active}", asked.Format(time.RFC3339))

	// Now every two seconds, without runs for the time before. On a busy host two may be due at once, of which only the last one would start.
	changed := time.Now()
	s.kubectl(t, "patch", "ct", "backup", "--type", "merge", "-p", `{"spec":{"schedule":"@every 2s","missedRuns":"All"}}`)
	var times []int64
	s.until(t, "there are three more Jobs", func(names string) bool {
		times = nil
		for _, name := range strings.Fields(names) {
			seconds, err := strconv.ParseInt(strings.TrimPrefix(name, "job.batch/backup-"), 10, 64)
			if err != nil {
				t.Fatalf("unexpected name of a Job: %s", name)
			}
			if seconds != asked.Unix() {
				times = append(times, seconds)
			}
		}
		slices.Sort(times)
		return len(times) >= 3
	}, "get", "jobs", "-o", "name")
	if first := time.Unix(times[0], 0); first.Before(changed.Truncate(time.Second)) {
		t.Errorf("after a change at %v there is a run for %v", changed, first)
	}
	for i := 1; i < len(times); i++ {
		if times[i]-times[i-1] != 2 {
			t.Errorf("runs at %v, not every two seconds", times)
		}
	}

	// After the deletion there are no more runs, and the Jobs are deleted.
	s.kubectl(t, "delete", "ct", "backup")
	s.until(t, "nothing is left", transcript.Is(""), "get", "jobs,pods", "-o", "name")
}

// manyFields is a manifest with few defaults. Its kind is filled in.
const manyFields = `
apiVersion: %s
kind: %s
metadata:
  name: many-fields
  labels: {app: many}
spec:
  schedule: "* * * * *"
  timeZone: Asia/Kathmandu
  startingDeadlineSeconds: 200
  concurrencyPolicy: Forbid
  suspend: false
  successfulJobsHistoryLimit: 5
  failedJobsHistoryLimit: 2
  jobTemplate:
    metadata:
      creationTimestamp: null
      name: ignored
      labels: {app: many, tier: batch}
      annotations: {note: "a job"}
    spec:
      parallelism: 2
      completions: 2
      completionMode: Indexed
      backoffLimit: 3
      activeDeadlineSeconds: 100
      ttlSecondsAfterFinished: 600
      podReplacementPolicy: Failed
      podFailurePolicy:
        rules:
          - action: FailJob
            onExitCodes: {containerName: main, operator: In, values: [42]}
      template:
        metadata:
          creationTimestamp: null
          labels: {app: many}
          annotations: {note: "a pod"}
        spec:
          restartPolicy: Never
          serviceAccountName: default
          terminationGracePeriodSeconds: 3
          nodeSelector: {kubernetes.io/os: linux}
          securityContext: {runAsUser: 1000, fsGroup: 2000}
          tolerations:
            - {key: a, operator: Exists}
          initContainers:
            - {name: init, image: "busybox:1", command: [sh, -c, "true"]}
          containers:
            - name: main
              image: busybox
              args: [a, "b c"]
              ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]
              env:
                - {name: ONE, value: "1"}
                - {name: ONE, value: "2"}
                - name: NODE
                  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
                - name: LIMIT
                  valueFrom: {resourceFieldRef: {resource: limits.memory}}
              resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: "0.5Gi"}}
              livenessProbe: {httpGet: {port: 80, path: /}, periodSeconds: 7}
              volumeMounts: [{name: tmp, mountPath: /tmp}, {name: token, mountPath: /token, readOnly: true}]
          volumes:
            - {name: tmp, emptyDir: {sizeLimit: 1Mi}}
            - name: token
              projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 600}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]}
`

// fewFields is like the first manifest in the documentation of CronJob.
const fewFields = `
apiVersion: %s
kind: %s
metadata:
  name: few-fields
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: hello
            image: busybox:1.28
            imagePullPolicy: IfNotPresent
            command: [/bin/sh, -c, date; echo Hello from the Kubernetes cluster]
          restartPolicy: OnFailure
`

// A CronTab with the spec of a CronJob creates the same Jobs at the same times.
func TestSmokeCronTabIsACronJob(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	withinOneMinute(t)
	var manifests []string
	for _, template := range []string{fewFields, manyFields} {
		for kind, version := range map[string]string{"CronJob": "batch/v1", "CronTab": "stable.example.com/v1"} {
			manifests = append(manifests, fmt.Sprintf(template, version, kind))
		}
	}
	s.applyAll(t, manifests)
	for _, name := range []string{"few-fields", "many-fields"} {
		for _, kind := range []string{"cronjob/", "crontab/"} {
			// It runs at the next full minute. That may take longer than the timeout of a command.
			recorded := s.words([]string{"wait", "--for=jsonpath={.status.lastSuccessfulTime}", kind + name, "--timeout=50s"})
			if result := s.Run(t, recorded...); result.Code != 0 {
				s.OK(t, recorded...)
			}
		}
		s.until(t, "the TTL begins", func(string) bool {
			of := s.jobsByOwner(t, name)
			return len(of["CronJob"]) > 0 && len(of["CronTab"]) > 0 &&
				cmp.Equal(of["CronJob"][0].Spec.TTLSecondsAfterFinished, of["CronTab"][0].Spec.TTLSecondsAfterFinished)
		}, "get", "jobs", "-o", "name")
		of := s.jobsByOwner(t, name)
		if diff := cmp.Diff(comparable(of["CronJob"][0]), comparable(of["CronTab"][0])); diff != "" {
			t.Errorf("%s: Jobs (-CronJob +CronTab):\n%s", name, diff)
		}
		// One of them may be in the next minute already.
		const times = "{.status.lastScheduleTime} {.status.active[*].name}"
		transcript.Eventually(t, name+": the statuses of the CronJob and the CronTab are the same", func() bool {
			return s.field(t, "cronjob/"+name, times) == s.field(t, "crontab/"+name, times)
		})
	}
}

// jobsByOwner returns the Jobs of the CronJob and the CronTab with a name.
func (s session) jobsByOwner(t *testing.T, name string) map[string][]batchv1.Job {
	t.Helper()
	of := map[string][]batchv1.Job{}
	for _, job := range s.jobs(t) {
		if ref := metav1.GetControllerOf(&job); ref != nil && ref.Name == name {
			of[ref.Kind] = append(of[ref.Kind], job)
		}
	}
	return of
}

// comparable returns a Job without the expected differences: names and values derived from the UID,
// creation times and owners, and what only a CronTab sets: its label, and the scheduled time in the pods.
func comparable(job batchv1.Job) batchv1.Job {
	own := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(name, _ string) bool {
			return strings.HasSuffix(name, "controller-uid") || strings.HasSuffix(name, "job-name") || name == stablev1.NameLabel
		})
		if len(labels) == 0 {
			return nil
		}
		return labels
	}
	job.ObjectMeta = metav1.ObjectMeta{
		Namespace: job.Namespace, Labels: own(job.Labels), Annotations: job.Annotations, OwnerReferences: job.OwnerReferences, Finalizers: job.Finalizers,
	}
	for i := range job.OwnerReferences {
		job.OwnerReferences[i].Kind, job.OwnerReferences[i].APIVersion, job.OwnerReferences[i].UID = "", "", ""
	}
	job.Spec.Selector = nil
	job.Spec.Template.Labels = own(job.Spec.Template.Labels)
	job.Spec.Template.Annotations = maps.Clone(job.Spec.Template.Annotations)
	if delete(job.Spec.Template.Annotations, batchv1.CronJobScheduledTimestampAnnotation); len(job.Spec.Template.Annotations) == 0 {
		job.Spec.Template.Annotations = nil
	}
	job.Status = batchv1.JobStatus{}
	return job
}
