package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// The rules of these tests: a ConfigMap may have no value that is "wrong".
var rules = Rules[*corev1.ConfigMap]{
	Errors: func(object *corev1.ConfigMap) field.ErrorList {
		var all field.ErrorList
		for _, key := range []string{"a", "b"} {
			if object.Data[key] == "wrong" {
				all = append(all, field.Invalid(field.NewPath("data").Key(key), "wrong", "must be right"))
			}
		}
		return all
	},
	Warnings: func(object *corev1.ConfigMap, now time.Time) []string {
		if object.Data["until"] == now.Format(time.DateOnly) {
			return []string{"this is the last day"}
		}
		return nil
	},
}

func newValidator() *validator[*corev1.ConfigMap] {
	return &validator[*corev1.ConfigMap]{
		scheme: clientgoscheme.Scheme, rules: rules,
		now: func() time.Time { return time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC) },
	}
}

func newObject(data ...string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "it"}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		object.Data[data[i]] = data[i+1]
	}
	return object
}

func TestCreate(t *testing.T) {
	_, err := newValidator().ValidateCreate(t.Context(), newObject("a", "wrong", "b", "wrong"))
	if !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want what the API server calls invalid", err)
	}
	const want = `ConfigMap "it" is invalid: [data[a]: Invalid value: "wrong": must be right, data[b]: Invalid value: "wrong": must be right]`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("the refusal (-want +got):\n%s", diff)
	}
	warnings, err := newValidator().ValidateCreate(t.Context(), newObject("a", "right", "until", "2026-03-04"))
	if diff := cmp.Diff([]string{"this is the last day"}, []string(warnings)); diff != "" || err != nil {
		t.Errorf("error %v, warnings (-want +got):\n%s", err, diff)
	}
}

func TestUpdate(t *testing.T) {
	deleted := newObject("a", "wrong")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, test := range []struct {
		name          string
		before, after *corev1.ConfigMap
		want          string
	}{
		{"a new mistake", newObject(), newObject("a", "wrong"), `ConfigMap "it" is invalid: data[a]: Invalid value: "wrong": must be right`},
		{"a mistake that was there before", newObject("a", "wrong"), newObject("a", "wrong", "c", "other"), ""},
		{"one beside a mistake that was there before", newObject("a", "wrong"), newObject("a", "wrong", "b", "wrong"), `ConfigMap "it" is invalid: data[b]: Invalid value: "wrong": must be right`},
		{"a mistake is mended", newObject("a", "wrong"), newObject("a", "right"), ""},
		{"it is being deleted", newObject(), deleted, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if _, err := newValidator().ValidateUpdate(t.Context(), test.before, test.after); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// A rule about changes sees both objects.
func TestChanges(t *testing.T) {
	v := newValidator()
	v.rules.Changes = func(before, after *corev1.ConfigMap) field.ErrorList {
		return field.ErrorList{field.Forbidden(field.NewPath("data"), before.Data["a"]+" to "+after.Data["a"])}
	}
	if _, err := v.ValidateUpdate(t.Context(), newObject("a", "old"), newObject("a", "new")); err == nil || !strings.Contains(err.Error(), "data: Forbidden: old to new") {
		t.Errorf("the refusal is %v", err)
	}
	if _, err := v.ValidateCreate(t.Context(), newObject("a", "new")); err != nil {
		t.Errorf("a new object: %v", err)
	}
}

// trial tries ConfigMaps: one may not have a value that is "broken", and is warned of one that is "old". It counts.
type trial struct{ tried int }

func (*trial) Concerns(before, after *corev1.ConfigMap) bool {
	return before.Data["a"] != after.Data["a"]
}

func (t *trial) Try(_ context.Context, object *corev1.ConfigMap) (field.ErrorList, []string) {
	t.tried++
	switch path := field.NewPath("data").Key("a"); object.Data["a"] {
	case "broken", "broken, too":
		return field.ErrorList{field.Forbidden(path, "is broken")}, nil
	case "old":
		return nil, []string{"a is old"}
	}
	return nil, nil
}

func TestTrial(t *testing.T) {
	const broken = `ConfigMap "it" is invalid: data[a]: Forbidden: is broken`
	for _, test := range []struct {
		name          string
		before, after *corev1.ConfigMap // nothing before: it is created
		want          string
		warnings      []string
		tried         int
	}{
		{"one is created", nil, newObject("a", "right"), "", nil, 1},
		{"what it finds is a refusal", nil, newObject("a", "broken"), broken, nil, 1},
		{"beside what the rules find", nil, newObject("a", "broken", "b", "wrong"),
			`ConfigMap "it" is invalid: [data[b]: Invalid value: "wrong": must be right, data[a]: Forbidden: is broken]`, nil, 1},
		{"what it warns of is passed on, after the other warnings", nil, newObject("a", "old", "until", "2026-03-04"), "", []string{"this is the last day", "a is old"}, 1},
		{"a change that does not concern it", newObject("a", "broken"), newObject("a", "broken", "b", "right"), "", nil, 0},
		{"a change that is a mistake", newObject("a", "right"), newObject("a", "broken"), broken, nil, 2},
		{"a change that keeps a mistake", newObject("a", "broken"), newObject("a", "broken, too"), "", nil, 2},
		{"a change for the better", newObject("a", "broken"), newObject("a", "old"), "", []string{"a is old"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			tries, v := &trial{}, newValidator()
			v.rules.Trial = tries
			warnings, err := v.ValidateCreate(t.Context(), test.after)
			if test.before != nil {
				tries.tried = 0
				warnings, err = v.ValidateUpdate(t.Context(), test.before, test.after)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warnings, []string(warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if tries.tried != test.tried {
				t.Errorf("tried %d times, want %d", tries.tried, test.tried)
			}
		})
	}
}

func TestDeletionIsNeverRefused(t *testing.T) {
	if _, err := newValidator().ValidateDelete(t.Context(), newObject("a", "wrong")); err != nil {
		t.Errorf("a deletion is refused: %v", err)
	}
}
