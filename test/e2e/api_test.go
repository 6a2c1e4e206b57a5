package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func TestSmokeDefinitionsAreServed(t *testing.T) {
	t.Parallel()
	s := shell(t)
	transcript.Contains(t, s.kubectl(t, "get", "crd", "-o", "name"),
		"customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com\n",
		"customresourcedefinition.apiextensions.k8s.io/clusters.clusterprovisioner.rke.io\n",
		"customresourcedefinition.apiextensions.k8s.io/kubeconfigs.clusterprovisioner.rke.io\n",
		"customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io\n",
		"customresourcedefinition.apiextensions.k8s.io/sampleresources.example.com\n",
		"customresourcedefinition.apiextensions.k8s.io/virtualmachines.cloudnative.tw\n",
	)
	transcript.Contains(t, s.kubectl(t, "api-resources", "--categories=keelson", "-o", "name"),
		"crontabs.stable.example.com\n",
		"clusters.clusterprovisioner.rke.io\n",
		"kubeconfigs.clusterprovisioner.rke.io\n",
		"foos.samplecontroller.k8s.io\n",
		"sampleresources.example.com\n",
		"virtualmachines.cloudnative.tw\n",
	)
}

// The description of every field of Keelson is a sentence. Below metadata the descriptions are
// those of Kubernetes.
func TestSmokeExplain(t *testing.T) {
	t.Parallel()
	for resource, fields := range map[string][]string{
		"foo": {
			"foo", "foo.spec", "foo.spec.deploymentName", "foo.spec.image", "foo.spec.replicas",
			"foo.status", "foo.status.availableReplicas", "foo.status.conditions", "foo.status.conditions.reason",
			"foo.status.observedGeneration", "foo.status.selector",
		},
		"crontab": {
			"crontab", "crontab.spec", "crontab.spec.schedule", "crontab.spec.timeZone", "crontab.spec.jobTemplate",
			"crontab.status", "crontab.status.nextScheduleTime", "crontab.status.conditions", "crontab.status.missedRuns",
		},
		"cluster": {
			"cluster", "cluster.spec", "cluster.spec.apiServer.certSANs", "cluster.spec.apiServer.extraArgs",
			"cluster.spec.apiServer.port", "cluster.spec.configPath", "cluster.spec.deletionProtection",
			"cluster.spec.engine", "cluster.spec.paused", "cluster.spec.version", "cluster.status.appliedConfig",
			"cluster.status.conditions", "cluster.status.endpoint", "cluster.status.kubeconfigRef.secretRef.key",
			"cluster.status.lastOperation.description", "cluster.status.phase", "cluster.status.version",
		},
		"kubeconfig": {
			"kubeconfig", "kubeconfig.spec", "kubeconfig.spec.configPath", "kubeconfig.spec.secretRef.name",
			"kubeconfig.status", "kubeconfig.status.lastRotated", "kubeconfig.status.notAfter", "kubeconfig.status.server",
		},
		"sampleresource": {
			"sampleresource", "sampleresource.spec", "sampleresource.spec.podImage",
			"sampleresource.status", "sampleresource.status.conditions", "sampleresource.status.podName",
			"sampleresource.status.replacements", "sampleresource.status.observedGeneration",
		},
		"vm": {
			"vm", "vm.spec", "vm.spec.action", "vm.spec.resource.cpu", "vm.spec.resource.rootDisk", "vm.spec.image.url",
			"vm.spec.cloudInit.userDataFrom.key", "vm.spec.ports.protocol", "vm.spec.restartPolicy",
			"vm.status.server.usage.cpu", "vm.status.server.endpoints.address", "vm.status.startFailure.retryAfter",
		},
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			explained := map[string]string{}
			explain(t, shell(t), resource, explained)
			for _, field := range fields {
				if _, found := explained[field]; !found {
					t.Errorf("kubectl explain does not know %s", field)
				}
			}
			for field, description := range explained {
				if !sentence.MatchString(description) {
					t.Errorf("kubectl explain %s: no helpful sentence: %q", field, description)
				}
			}
		})
	}
}

// sentence is the form of a description: several words, and a full stop or a URL at the end.
var sentence = regexp.MustCompile(`^[A-Za-z][\w-]*( \S+){2,}(\.| https://\S+)$`)

// fieldLine matches a field in the output of kubectl explain.
var fieldLine = regexp.MustCompile(`^  (\w+)\t<([^>]*)>`)

// explain adds the descriptions of all fields below path to explained.
func explain(t *testing.T, s session, path string, explained map[string]string) {
	t.Helper()
	head, list, _ := strings.Cut(s.kubectl(t, "explain", path), "\nFIELDS:\n")
	_, description, _ := strings.Cut(head, "\nDESCRIPTION:\n")
	explained[path] = oneLine(description)

	var field string
	words := map[string]string{}
	for line := range strings.SplitSeq(list, "\n") {
		if match := fieldLine.FindStringSubmatch(line); match != nil {
			field = path + "." + match[1]
			words[field] = ""
			// Below a template the descriptions are those of Kubernetes.
			isTemplate := match[1] == "jobTemplate" || strings.HasSuffix(field, ".pod.template")
			if isObject := strings.HasSuffix(match[2], "Object"); isObject && !isTemplate {
				explain(t, s, field, explained)
			}
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "enum: ") {
			continue
		}
		words[field] += line + "\n"
	}
	for field, description := range words {
		if field != "" {
			explained[field] = oneLine(description)
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// The rejection of invalid input has the path of the field and the accepted values.
func TestSmokeInvalidInputIsRejected(t *testing.T) {
	t.Parallel()
	foo := func(spec string) string {
		return "apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {name: wrong}\nspec: {" + spec + "}\n"
	}
	sample := func(spec string) string {
		return "apiVersion: example.com/v1\nkind: SampleResource\nmetadata: {name: wrong}\nspec: {" + spec + "}\n"
	}
	machine := func(spec string) string {
		return "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: wrong}\nspec: {" + spec + "}\n"
	}
	cronTab := func(spec string) string {
		return "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: wrong}\nspec: {" + spec + "}\n"
	}
	const template = "jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}"
	for _, test := range []struct {
		name     string
		manifest string
		want     []string
	}{
		{"an invalid minute", cronTab(`schedule: "61 * * * *", ` + template), []string{"spec.schedule", "61 * * * *", "0 to 59"}},
		{"an unknown time zone", cronTab(`timeZone: Mars/Base`), []string{"spec.timeZone", "Mars/Base", "Europe/Berlin"}},
		{"both schedule and schedules", cronTab(`schedule: "@daily", schedules: ["@daily"], ` + template), []string{"spec.schedules", "not both"}},
		{"a template without containers", cronTab(`schedule: "@daily", jobTemplate: {restartPolicy: Never}`), []string{"spec.jobTemplate.containers: Required value"}},
		{"a Job without containers", cronTab(`schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: Never}}}}`), []string{"spec.jobTemplate.spec.template.spec.containers: Required value"}},
		{"negative replicas", foo("deploymentName: a, replicas: -1"), []string{"spec.replicas", "-1", "greater than or equal to 0"}},
		{"replicas as text", foo("deploymentName: a, replicas: two"), []string{"spec.replicas", "must be of type integer"}},
		{"a missing deploymentName", foo("replicas: 1"), []string{"spec.deploymentName: Required value"}},
		{"an empty name", foo(`deploymentName: ""`), []string{"spec.deploymentName", "at least 1 chars long"}},
		{"an invalid name", foo("deploymentName: Upper_Case"), []string{"spec.deploymentName", "Upper_Case", "lower case letters, digits, '-' and '.'"}},
		{"a name too long for that of a ReplicaSet", foo("deploymentName: " + strings.Repeat("a", 243)), []string{"spec.deploymentName", "242"}},
		{"an image with leading space", foo(`deploymentName: a, image: " nginx"`), []string{"spec.image", "must not begin or end with white space"}},
		{"a misspelt field", foo("deploymentName: a, replica: 1"), []string{`unknown field "spec.replica"`}},
		{"no image", sample(""), []string{"spec.podImage: Required value"}},
		{"an empty image", sample(`podImage: ""`), []string{"spec.podImage", "at least 1 chars long"}},
		{"a blank image", sample(`podImage: "  "`), []string{"spec.podImage", "must not begin or end with white space"}},
		{"an image with a trailing newline", sample(`podImage: "nginx\n"`), []string{"spec.podImage", "must not begin or end with white space"}},
		{"a machine without a processor", machine("resource: {cpu: 0}"), []string{"spec.resource.cpu", "more than 0"}},
		{"a machine of a kilobyte", machine("resource: {memory: 1Ki}"), []string{"spec.resource.memory", "at least 32Mi"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := shell(t)
			s.Stdin = test.manifest
			transcript.Contains(t, s.Fails(t, 1, s.words([]string{"apply", "-f", "-"})...), test.want...)
		})
	}
}
