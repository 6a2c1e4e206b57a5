//go:build linux

package node

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// scaled is a Deployment whose HorizontalPodAutoscaler needs the metrics of its Pods.
const scaled = `apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled}
spec:
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec:
      containers: [{name: app, image: "app:v1", resources: {requests: {cpu: 10m, memory: 1Mi}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaled}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}
  minReplicas: 1
  maxReplicas: 2
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 64Ki}}}
`

// top compares what kubectl top prints with what is known, and has Pods scaled by it.
func top(t *testing.T, u *user) {
	u.apply(t, scaled)
	u.usesMemory(t, "top", "pod", "web", "--no-headers")
	u.usesMemory(t, "top", "node", node.Name(0), "--no-headers")
	transcript.Contains(t, u.kubectl(t, "top", "pods", "--containers", "-l", "run=web"), "POD   NAME   CPU(cores)   MEMORY(bytes)", "\nweb   web ")
	if got := u.kubectl(t, "top", "pods", "--all-namespaces", "--field-selector", "metadata.name=nobody"); got != "" {
		t.Errorf("no Pod: %q", got)
	}
	u.kubectl(t, "wait", "--for=condition=ScalingActive", "hpa/scaled", "--timeout", transcript.WaitTimeout.String())
	u.Until(t, "its Pods are scaled", transcript.Is("2"), "kubectl", "get", "deployment/scaled", "-o", "jsonpath={.spec.replicas}")
	u.kubectl(t, "delete", "deployment/scaled", "hpa/scaled")
	// An API that is registered and not reached would keep the namespace.
	u.kubectl(t, "create", "namespace", "short")
	u.kubectl(t, "delete", "namespace", "short", "--timeout", transcript.WaitTimeout.String())
}

// usesMemory waits until kubectl top prints memory in its last column or the one before. The kubelet measures every ten seconds.
func (u *user) usesMemory(t *testing.T, words ...string) {
	t.Helper()
	u.Until(t, "it uses memory", func(out string) bool {
		fields := strings.Fields(out)
		if len(fields) < 3 {
			return false
		}
		memory := fields[2]
		if words[1] == "node" && len(fields) > 3 {
			memory = fields[3]
		}
		quantity, err := resource.ParseQuantity(memory)
		return err == nil && quantity.Sign() > 0
	}, append([]string{"kubectl"}, words...)...)
}

func topOfNodes(t *testing.T, u *user) {
	for index := range 3 {
		u.usesMemory(t, "top", "node", node.Name(index), "--no-headers")
	}
	if lines := strings.Count(u.kubectl(t, "top", "nodes", "--no-headers"), "\n"); lines != 3 {
		t.Errorf("%d nodes", lines)
	}
	if lines := strings.Count(u.kubectl(t, "top", "pods", "-l", "app=web", "--no-headers"), "\n"); lines != 3 {
		t.Errorf("%d Pods", lines)
	}
}
