//go:build linux

package node

import (
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// scaledSet is a VirtualMachineSet whose HorizontalPodAutoscaler needs the metrics of the Pods of its machines. An emulated machine is
// never idle.
const scaledSet = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachineSet
metadata: {name: scaled}
spec:
  replicas: 1
  template:
    spec: {resource: {cpu: 1, memory: 128Mi}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaled}
spec:
  scaleTargetRef: {apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachineSet, name: scaled}
  minReplicas: 1
  maxReplicas: 2
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1m}}}
`

// autoscaledInPod has a set of machines scaled by the processor time that their Pods use.
func autoscaledInPod(t *testing.T, u *user) {
	u.apply(t, scaledSet)
	u.kubectl(t, "wait", "--for=condition=ScalingActive", "hpa/scaled", "--timeout", transcript.WaitTimeout.String())
	u.Until(t, "the set is scaled", transcript.Is("2"), "kubectl", "get", "vmset/scaled", "-o", "jsonpath={.spec.replicas}")
	u.kubectl(t, "wait", "--for=create", "virtualmachine/scaled-1", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "delete", "hpa/scaled", "vmset/scaled")
	u.kubectl(t, "wait", "--for=delete", "virtualmachine/scaled-0", "virtualmachine/scaled-1", "--timeout", transcript.WaitTimeout.String())
}
