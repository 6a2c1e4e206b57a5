package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	exampleFoo        = "foo/example-foo"
	exampleDeployment = "deployment/example-foo"
)

func TestSmokeFoo(t *testing.T) {
	t.Parallel()
	s := newSession(t)

	// The Foo soon owns a Deployment.
	s.kubectl(t, "create", "-f", manifest("foo.yaml"))
	s.wait(t, "create", exampleDeployment)
	s.untilField(t, exampleDeployment,
		"{.metadata.ownerReferences[*].kind} {.metadata.ownerReferences[*].name} {.spec.replicas} {.spec.template.spec.containers[*].image}",
		"Foo example-foo 1 nginx:latest")
	s.wait(t, "condition=Ready", exampleFoo)
	columns := strings.Fields(s.kubectl(t, "get", exampleFoo))
	if got := strings.Join(columns[:len(columns)-1], " "); got != "NAME DEPLOYMENT DESIRED AVAILABLE READY AGE example-foo example-foo 1 1 True" {
		t.Errorf("kubectl get foo shows %q", got)
	}

	// A deleted Deployment is soon recreated.
	uid := s.field(t, exampleDeployment, "{.metadata.uid}")
	s.kubectl(t, "delete", exampleDeployment)
	s.until(t, "there is a new one", transcript.Not(uid), "get", exampleDeployment, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

	// A manual scale of the Deployment is soon reverted.
	s.wait(t, "condition=Ready", exampleFoo)
	generation, err := strconv.Atoi(s.field(t, exampleDeployment, "{.metadata.generation}"))
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "scale", exampleDeployment, "--replicas", "5")
	s.untilField(t, exampleDeployment, "{.metadata.generation} {.spec.replicas}", strconv.Itoa(generation+2)+" 1")

	// The Foo itself can be scaled, and reports the selector of its pods to autoscalers.
	s.kubectl(t, "scale", exampleFoo, "--replicas", "3")
	s.untilField(t, exampleDeployment, "{.spec.replicas} {.status.availableReplicas}", "3 3")
	s.untilField(t, exampleFoo, "{.status.availableReplicas}", "3")
	s.wait(t, "condition=Ready", exampleFoo)
	selector := s.kubectl(t, "get", exampleFoo, "--subresource=scale", "-o", "jsonpath={.status.selector}")
	s.until(t, "the selector of the scale selects the three pods", func(pods string) bool { // those of the other scale may still be ending
		return len(strings.Fields(pods)) == 3
	}, "get", "pods", "--selector", selector, "-o", "name")

	// Its deletion deletes all its children.
	s.kubectl(t, "delete", exampleFoo)
	s.until(t, "nothing is left", transcript.Is(""), "get", "deployments,replicasets,pods", "-o", "name")

	// The names can be reused.
	s.kubectl(t, "apply", "-f", manifest("foo.yaml"))
	s.wait(t, "condition=Ready", exampleFoo)
}

func TestSmokeFooLeavesForeignDeploymentsAlone(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const all = "{.metadata.uid} {.metadata.labels} {.metadata.ownerReferences} {.metadata.generation} {.spec}"

	s.kubectl(t, "create", "deployment", "example-foo", "--image", "busybox", "--replicas", "2")
	before := s.field(t, exampleDeployment, all)
	s.kubectl(t, "create", "-f", manifest("foo.yaml"))
	s.wait(t, "condition=Ready=False", exampleFoo)
	s.untilField(t, exampleFoo, `{.status.conditions[?(@.type=="Ready")].reason}`, "ErrResourceExists")
	transcript.Contains(t, s.field(t, exampleFoo, `{.status.conditions[?(@.type=="Ready")].message}`), `"example-foo"`, "spec.deploymentName")
	s.until(t, "a warning is recorded", transcript.Is("Warning Foo/example-foo"), "get", "events",
		"--field-selector", "reason=ErrResourceExists",
		"-o", "jsonpath={range .items[*]}{.type} {.involvedObject.kind}/{.involvedObject.name}{end}")
	if after := s.field(t, exampleDeployment, all); after != before {
		t.Errorf("the foreign Deployment was changed from\n%s\nto\n%s", before, after)
	}

	// When the foreign Deployment is deleted, the Foo takes the name.
	s.kubectl(t, "delete", exampleDeployment)
	s.wait(t, "condition=Ready", exampleFoo)
	s.untilField(t, exampleDeployment, "{.metadata.ownerReferences[*].kind} {.spec.replicas}", "Foo 1")
}

// The new Deployment exists before the old one is deleted.
func TestSmokeFooWithRenamedDeployment(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.kubectl(t, "create", "-f", manifest("foo.yaml"))
	s.wait(t, "create", exampleDeployment)
	s.wait(t, "condition=Ready", exampleFoo)

	watch := s.Start(t, s.words([]string{"get", "deployments", "--watch", "--output-watch-events",
		"-o", `jsonpath={.type} {.object.metadata.name}{"\n"}`})...)
	watch.Await(t, "ADDED example-foo\n")
	s.kubectl(t, "patch", exampleFoo, "--type", "merge", "-p", `{"spec":{"deploymentName":"renamed-foo"}}`)
	watch.Await(t, "DELETED example-foo\n")
	before, _, _ := strings.Cut(watch.Text(), "DELETED example-foo\n")
	if !strings.Contains(before, "ADDED renamed-foo\n") {
		t.Errorf("the old Deployment was deleted before there was a new one:\n%s", watch.Text())
	}
	s.wait(t, "condition=Ready", exampleFoo)
	s.until(t, "only the new one is left", transcript.Is("deployment.apps/renamed-foo"), "get", "deployments", "-o", "name")
}
