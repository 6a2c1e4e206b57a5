package e2e

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	exampleSample = "sampleresource/example-sample"
	examplePod    = "pod/example-sample"
)

func TestSmokeSampleResource(t *testing.T) {
	t.Parallel()
	s := newSession(t)

	// A Pod soon runs the image.
	s.kubectl(t, "create", "-f", manifest("sampleresource.yaml"))
	s.wait(t, "condition=Ready", exampleSample)
	s.untilField(t, examplePod,
		"{.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name} {.spec.containers[*].image} {.status.phase}",
		"SampleResource example-sample nginx:latest Running")
	columns := strings.Fields(s.kubectl(t, "get", exampleSample))
	if got := strings.Join(columns[:len(columns)-1], " "); got != "NAME IMAGE POD READY REPLACEMENTS AGE example-sample nginx:latest example-sample True 0" {
		t.Errorf("kubectl get sampleresource shows %q", got)
	}

	// A deleted Pod is recreated.
	uid := s.field(t, examplePod, "{.metadata.uid}")
	s.kubectl(t, "delete", examplePod)
	uid = s.until(t, "there is a new one", transcript.Not(uid), "get", examplePod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
	s.wait(t, "condition=Ready", exampleSample)

	// After a change of the image, the same Pod runs it.
	s.kubectl(t, "patch", exampleSample, "--type", "merge", "-p", `{"spec":{"podImage":"nginx:1.29"}}`)
	s.untilField(t, examplePod, "{.metadata.uid} {.spec.containers[*].image}", uid+" nginx:1.29")

	// The Pod is deleted with the SampleResource.
	s.kubectl(t, "delete", exampleSample)
	s.until(t, "nothing is left", transcript.Is(""), "get", "pods", "-o", "name")

	// The name can be reused.
	s.kubectl(t, "apply", "-f", manifest("sampleresource.yaml"))
	s.wait(t, "condition=Ready", exampleSample)
}

func TestSmokeSampleResourceReplacesFailedPod(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.kubectl(t, "create", "-f", manifest("sampleresource.yaml"))
	s.wait(t, "condition=Ready", exampleSample)
	uid := s.field(t, examplePod, "{.metadata.uid}")

	s.kubectl(t, "patch", examplePod, "--subresource=status", "--type", "merge", "-p", `{"status":{"phase":"Failed"}}`)
	s.until(t, "there is a new one", transcript.Not(uid), "get", examplePod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
	s.wait(t, "condition=Ready", exampleSample)
	s.untilField(t, exampleSample, "{.status.replacements}", "1")
}

func TestSmokeSampleResourceLeavesForeignPodsAlone(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const all = "{.metadata.uid} {.metadata.labels} {.metadata.ownerReferences} {.spec.containers[*].image}"

	s.until(t, "pods are admitted", transcript.Is("serviceaccount/default"), "get", "serviceaccount", "default", "-o", "name")
	s.kubectl(t, "run", "example-sample", "--image", "busybox")
	before := s.field(t, examplePod, all)
	s.kubectl(t, "create", "-f", manifest("sampleresource.yaml"))
	s.wait(t, "condition=Ready=False", exampleSample)
	s.untilField(t, exampleSample, `{.status.conditions[?(@.type=="Ready")].reason}`, "ErrResourceExists")
	s.until(t, "a warning is recorded", transcript.Is("Warning SampleResource/example-sample"), "get", "events",
		"--field-selector", "reason=ErrResourceExists",
		"-o", "jsonpath={range .items[*]}{.type} {.involvedObject.kind}/{.involvedObject.name}{end}")
	if after := s.field(t, examplePod, all); after != before {
		t.Errorf("the foreign Pod was changed from\n%s\nto\n%s", before, after)
	}

	// When the foreign Pod is deleted, the SampleResource takes the name.
	s.kubectl(t, "delete", examplePod, "--grace-period=1")
	s.wait(t, "condition=Ready", exampleSample)
	s.untilField(t, examplePod, "{.metadata.ownerReferences[*].kind} {.spec.containers[*].image}", "SampleResource nginx:latest")
}
