// Package admission is how the manager answers an API server that asks before it stores an object: the handler for each
// kind, and the certificates to serve it with.
//
// The rules are those of the controllers, as pure functions, and of the API server; there is no other set here.
package admission

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Rules validate objects of one kind.
type Rules[T client.Object] struct {
	// Errors returns all reasons to refuse the object.
	Errors func(T) field.ErrorList
	// Changes, if set, returns all reasons to refuse a change.
	Changes func(before, after T) field.ErrorList
	// Warnings, if set, returns warnings for the user who writes the object at this time.
	Warnings func(T, time.Time) []string
	// Trial, if set, finds what takes a request to the API server.
	Trial Trial[T]
}

// Trial finds the mistakes of objects of one kind that take a request: it tries what will be done for them.
type Trial[T client.Object] interface {
	// Concerns reports whether a change may have made a mistake that Try finds.
	Concerns(before, after T) bool
	// Try returns all reasons to refuse the object, and warnings for the user who writes it. If it cannot decide, it returns no
	// reason; it takes less than half the time of an admission request.
	Try(ctx context.Context, object T) (field.ErrorList, []string)
}

// Handler answers admission requests about objects of one kind by its rules. The path names it in metrics.
func Handler[T client.Object](scheme *runtime.Scheme, rules Rules[T], path string, log logr.Logger) (http.Handler, error) {
	hook := admission.WithValidator[T](scheme, &validator[T]{scheme: scheme, rules: rules, now: time.Now})
	return admission.StandaloneWebhook(hook, admission.StandaloneOptions{Logger: log, MetricsPath: path})
}

// NoObjection answers admission requests about objects of a kind that this manager does not run: it allows all. The path names it in
// metrics.
func NoObjection(path string, log logr.Logger) (http.Handler, error) {
	hook := &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
	return admission.StandaloneWebhook(hook, admission.StandaloneOptions{Logger: log, MetricsPath: path})
}

// validator is an admission.Validator.
type validator[T client.Object] struct {
	scheme *runtime.Scheme
	rules  Rules[T]
	now    func() time.Time
}

// ValidateCreate implements admission.Validator.
func (v *validator[T]) ValidateCreate(ctx context.Context, object T) (admission.Warnings, error) {
	mistakes := v.rules.Errors(object)
	var said []string
	if v.rules.Trial != nil {
		var tried field.ErrorList
		tried, said = v.rules.Trial.Try(ctx, object)
		mistakes = append(mistakes, tried...)
	}
	if err := v.refusal(object, mistakes); err != nil {
		return nil, err
	}
	return append(v.warnings(object), said...), nil
}

// ValidateUpdate implements admission.Validator. A mistake that the object had before is not a reason to refuse a change:
// the change may suspend an object that was stored while the webhook was off.
func (v *validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if after.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	mistakes := v.rules.Errors(after)
	if len(mistakes) > 0 {
		mistakes = without(mistakes, v.rules.Errors(before))
	}
	if v.rules.Changes != nil {
		mistakes = append(mistakes, v.rules.Changes(before, after)...)
	}
	var said []string
	if trial := v.rules.Trial; trial != nil && trial.Concerns(before, after) {
		var tried field.ErrorList
		if tried, said = trial.Try(ctx, after); len(tried) > 0 {
			known, _ := trial.Try(ctx, before)
			mistakes = append(mistakes, without(tried, known)...)
		}
	}
	if err := v.refusal(after, mistakes); err != nil {
		return nil, err
	}
	return append(v.warnings(after), said...), nil
}

// without returns the mistakes that are not among those that are known.
func without(mistakes, known field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(mistakes, func(mistake *field.Error) bool {
		return slices.ContainsFunc(known, func(old *field.Error) bool { return equality.Semantic.DeepEqual(old, mistake) })
	})
}

// ValidateDelete implements admission.Validator. No webhook of ours is asked about deletions.
func (v *validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v *validator[T]) warnings(object T) admission.Warnings {
	if v.rules.Warnings == nil {
		return nil
	}
	return v.rules.Warnings(object, v.now())
}

// refusal is the error that the API server itself would give; nil if there is no mistake.
func (v *validator[T]) refusal(object T, mistakes field.ErrorList) error {
	if len(mistakes) == 0 {
		return nil
	}
	kind, err := apiutil.GVKForObject(object, v.scheme)
	if err != nil {
		return err
	}
	return apierrors.NewInvalid(kind.GroupKind(), object.GetName(), mistakes)
}
