package e2e

import (
	"cmp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// hasWebhook reports whether the API server calls the manager's webhook. It fails the test if the
// webhook is required but its configuration is missing.
func hasWebhook(t *testing.T, s session) bool {
	t.Helper()
	name := cmp.Or(webhook, "keelson")
	isThere := s.kubectl(t, "get", "validatingwebhookconfiguration", name, "--ignore-not-found", "-o", "name") != ""
	if !isThere && webhook != "" {
		t.Fatalf("ValidatingWebhookConfiguration %s is missing", name)
	}
	return isThere
}

// refused creates the object in the standard input, in a dry run, until that is refused, and returns what kubectl prints: an API server lets
// pass what the webhook of a busy manager has not answered within two seconds.
func (s session) refused(t *testing.T) string {
	t.Helper()
	var result transcript.Result
	transcript.Eventually(t, "the object is refused", func() bool {
		result = s.Run(t, s.words([]string{"create", "--dry-run=server", "-f", "-"})...)
		return result.Code == 1
	})
	return result.Stdout + result.Stderr
}

// The manager rejects what the CRDs cannot express before it is stored, with the API server's
// wording. Without a webhook, it reports the same in a condition.
func TestSmokeWebhookRejects(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const template = "  jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}\n"
	for _, test := range []struct {
		name, object, manifest, want, condition string
	}{
		{
			name: "a reversed range", object: "crontab/backwards",
			manifest:  "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: backwards}\nspec:\n  schedule: \"0 22-2 * * *\"\n" + template,
			want:      `The CronTab "backwards" is invalid: spec.schedule: Invalid value: "0 22-2 * * *": hour "22-2", character 3: the range runs backwards; write the smaller value first, or two ranges: 22-23,0-2`,
			condition: `InvalidSchedule spec.schedule: "0 22-2 * * *": hour "22-2": the range runs backwards; write the smaller value first, or two ranges: 22-23,0-2`,
		},
		{
			name: "a Job that only the API server can reject", object: "crontab/mounts",
			manifest: "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: mounts}\nspec:\n  schedule: \"@daily\"\n" +
				"  jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b, volumeMounts: [{name: data, mountPath: /data}]}]}\n",
			want:      `The CronTab "mounts" is invalid: spec.jobTemplate.containers[0].volumeMounts[0].name: Not found: "data"`,
			condition: `Scheduled The next run is scheduled`, // a run fails later
		},
		{
			name: "a missing driver", object: "vm/lost",
			manifest:  "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: lost}\nspec: {driver: bhyve}\n",
			want:      `The VirtualMachine "lost" is invalid: spec.driver: Invalid value: "bhyve": this manager was started with --vm-driver=qemu,fake and without bhyve; add it there`,
			condition: `DriverMissing Driver is missing: this manager was started with --vm-driver=qemu,fake and without bhyve; add it there`,
		},
		{
			name: "more processors than QEMU supports", object: "vm/large",
			manifest:  "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: large}\nspec: {resource: {cpu: 256}}\n",
			want:      `The VirtualMachine "large" is invalid: spec.resource.cpu: Invalid value: "256": the driver qemu supports at most 255 processors`,
			condition: `InvalidSpec Not possible: spec.resource.cpu: the driver qemu supports at most 255 processors`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s
			s.Stdin = test.manifest
			if hasWebhook(t, s) {
				if got := s.refused(t); strings.TrimSpace(got) != test.want {
					t.Errorf("kubectl printed\n%s, want\n%s", got, test.want)
				}
				return
			}
			s.kubectl(t, "create", "-f", "-")
			s.untilField(t, test.object, `{.status.conditions[?(@.type=="Ready")].reason} {.status.conditions[?(@.type=="Ready")].message}`, test.condition)
		})
	}
	// newSession needs at least one object to check at the end.
	s.Stdin = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: never}\nspec:\n  schedule: \"0 0 30 2 *\"\n" + template
	result := s.Run(t, s.words([]string{"create", "-f", "-"})...)
	if result.Code != 0 {
		t.Fatal("a schedule that never runs is rejected")
	}
	if hasWebhook(t, s) {
		transcript.Contains(t, result.Stderr, "Warning: The schedule has no future run.")
	}
}

// It also rejects cluster-scoped objects.
func TestSmokeWebhookRejectsClusters(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	if !hasWebhook(t, s) {
		t.Skip("SKIP: this manager has no webhook")
	}
	for _, test := range []struct{ name, manifest, want string }{
		{
			"an invalid path",
			"apiVersion: clusterprovisioner.rke.io/v1alpha1\nkind: Cluster\nmetadata: {name: tabbed}\nspec: {configPath: \"/etc/a\\tb.yml\"}\n",
			"The Cluster \"tabbed\" is invalid: spec.configPath: Forbidden: /etc/a\tb.yml: it must be an absolute path without control characters; clusters.rkeConfigDirs allows: /",
		},
		{
			"a forbidden Secret",
			"apiVersion: clusterprovisioner.rke.io/v1alpha1\nkind: Kubeconfig\nmetadata: {name: far}\nspec: {secretRef: {namespace: kube-system, name: a}}\n",
			`The Kubeconfig "far" is invalid: spec.secretRef.namespace: Invalid value: "kube-system": this manager may read Secrets in the namespace `,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s
			s.Stdin = test.manifest
			transcript.Contains(t, s.refused(t), test.want)
		})
	}
}
