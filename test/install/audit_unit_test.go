package install

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRecord(t *testing.T) {
	const allowed, forbidden = `"annotations":{"authorization.k8s.io/decision":"allow"}`, `"annotations":{"authorization.k8s.io/decision":"forbid"}`
	for _, tt := range []struct {
		name, event string
		want        record
	}{
		{
			"an allowed operation is a use", `{"verb":"update","objectRef":{"apiGroup":"g","resource":"foos","subresource":"status","namespace":"n","name":"a"},` + allowed + `}`,
			record{uses: map[use]bool{{"update", "g", "foos/status", "n", "a"}: true}},
		},
		{
			"so is one that fails for another reason", `{"verb":"create","objectRef":{"resource":"pods","namespace":"n"},"responseStatus":{"code":403,"message":"quota"},` + allowed + `}`,
			record{uses: map[use]bool{{"create", "", "pods", "n", ""}: true}},
		},
		{
			"one that the authorizer rejects is not", `{"verb":"list","objectRef":{"resource":"pods"},"responseStatus":{"code":403,"message":"no"},` + forbidden + `}`,
			record{refused: []string{"list pods: no"}},
		},
		{
			"nor is one that admission rejects for a missing permission",
			`{"verb":"create","objectRef":{"resource":"pods","namespace":"n"},"responseStatus":{"code":403,"message":"pods \"a\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"},` + allowed + `}`,
			record{refused: []string{`create pods in n: pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on`}},
		},
		{
			"the blocked owner is recorded",
			`{"verb":"create","objectRef":{"resource":"pods","namespace":"n"},"requestObject":{"metadata":{"ownerReferences":[{"apiVersion":"g/v1","kind":"Foo","blockOwnerDeletion":true},{"apiVersion":"g/v1","kind":"Bar"}]}},` + allowed + `}`,
			record{uses: map[use]bool{{"create", "", "pods", "n", ""}: true}, blocked: map[schema.GroupKind]bool{{Group: "g", Kind: "Foo"}: true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var event auditEvent
			if err := json.Unmarshal([]byte(tt.event), &event); err != nil {
				t.Fatal(err)
			}
			got := record{uses: map[use]bool{}, blocked: map[schema.GroupKind]bool{}}
			got.add(event)
			if len(got.uses) == 0 {
				got.uses = nil
			}
			if len(got.blocked) == 0 {
				got.blocked = nil
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(record{}, use{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnused(t *testing.T) {
	foo := schema.GroupKind{Group: "g", Kind: "Foo"}
	r := record{
		uses:    map[use]bool{{"get", "", "pods", "n", "a"}: true, {"update", "g", "foos/status", "n", "a"}: true},
		blocked: map[schema.GroupKind]bool{foo: true},
	}
	for _, tt := range []struct {
		name   string
		grant  use
		unused bool
	}{
		{"granted everywhere, used somewhere", use{verb: "get", resource: "pods"}, false},
		{"granted in the namespace of the use", use{verb: "get", resource: "pods", namespace: "n"}, false},
		{"elsewhere", use{verb: "get", resource: "pods", namespace: "other"}, true},
		{"granted for the object of the use", use{verb: "get", resource: "pods", name: "a"}, false},
		{"another object", use{verb: "get", resource: "pods", name: "b"}, true},
		{"another verb", use{verb: "list", resource: "pods"}, true},
		{"another group", use{verb: "get", group: "g", resource: "pods"}, true},
		{"a subresource", use{verb: "update", group: "g", resource: "foos/status"}, false},
		{"the resource of a subresource", use{verb: "update", group: "g", resource: "foos"}, true},
		{"finalizers that an admission plugin requires", use{verb: "update", group: "g", resource: "foos/finalizers"}, false},
		{"finalizers that nothing requires", use{verb: "update", group: "g", resource: "bars/finalizers"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := unused([]grant{{use: tt.grant}}, r, map[schema.GroupKind]string{foo: "foos/finalizers.g"})
			if (len(got) == 1) != tt.unused {
				t.Errorf("unused: %v, want %v", len(got) == 1, tt.unused)
			}
		})
	}
}

func TestFailedTests(t *testing.T) {
	output := "=== RUN   TestA\n--- PASS: TestA (0.1s)\n    a.go:1: fine\n--- FAIL: TestB (2s)\n    b.go:7: wrong\n--- PASS: TestC (0s)\nFAIL\n"
	if got := failedTests(output); len(got) != 1 || got[0] != "FAIL: TestB (2s)\n    b.go:7: wrong" {
		t.Errorf("failedTests: %q", got)
	}
}
