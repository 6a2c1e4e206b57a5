package env

import "fmt"

// SmallRequests returns a policy by which the first container of each new Pod requests so many thousandths of a processor. Nodes that share
// a machine have too little for several machines of the driver pod, each of which requests a whole one.
func SmallRequests(milliCPU int) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: small-requests}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - name: requests-a-processor
    expression: 'has(object.spec.containers[0].resources.requests) && "cpu" in object.spec.containers[0].resources.requests'
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "%dm"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: small-requests}
spec: {policyName: small-requests}
`, milliCPU)
}
