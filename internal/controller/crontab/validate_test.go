package crontab

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// A request does not take the place of one whose run has not started.
func TestValidateChange(t *testing.T) {
	const first, second = "2026-03-04T11:59:20Z", "2026-03-04T11:59:21Z"
	answered := func(c *stablev1.CronTab) { c.Status.LastRunRequestedAt = ptr.To(metav1.NewTime(at("11:59:20"))) }
	for _, test := range []struct {
		name          string
		before, after *stablev1.CronTab
		refused       bool
	}{
		{"the first request", newCronTab(), newCronTab(withRequest(first)), false},
		{"another while the first waits", newCronTab(withRequest(first)), newCronTab(withRequest(second)), true},
		{"an earlier time while the first waits", newCronTab(withRequest(second)), newCronTab(withRequest(first)), true},
		{"the same time in another zone", newCronTab(withRequest(first)), newCronTab(withRequest("2026-03-04T12:59:20+01:00")), false},
		{"a cancelled request", newCronTab(withRequest(first)), newCronTab(), false},
		{"another after the first has started", newCronTab(withRequest(first), answered), newCronTab(withRequest(second), answered), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ValidateChange(test.before, test.after); (len(got) > 0) != test.refused {
				t.Errorf("refused: %v", got)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*stablev1.CronTab)
		want   []string
	}{
		{"nothing", func(*stablev1.CronTab) {}, nil},
		{"a schedule", func(c *stablev1.CronTab) { c.Spec.Schedule = "@daily" }, nil},
		{"all errors are reported", func(c *stablev1.CronTab) {
			c.Spec.TimeZone = "Mars/Base"
			c.Spec.Schedules = []stablev1.Schedule{"@daily", "* * * * 5-2"}
			c.Spec.ExcludeDates = []stablev1.DateRange{"2026-02-30"}
		}, []string{
			`spec.timeZone: Invalid value: "Mars/Base": unknown time zone "Mars/Base"; use an IANA name such as Europe/Berlin`,
			`spec.schedules[1]: Invalid value: "* * * * 5-2": day of week "5-2", character 9: the range runs backwards; write the smaller value first, or two ranges: 5-6,0-2`,
			`spec.excludeDates[0]: Invalid value: "2026-02-30": date "2026-02-30", character 1: must be a date such as 2026-12-24 or a range such as 2026-12-24/2027-01-01`,
		}},
		{"a container that sets the variable of a parameter", func(c *stablev1.CronTab) {
			withParameters(c)
			region := []corev1.EnvVar{{Name: "region"}}
			c.Spec.JobTemplate = &stablev1.JobTemplate{PodSpec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "first", Env: region}}, Containers: []corev1.Container{{Name: "main"}}}}
		}, []string{
			`spec.parameters[0].name: Invalid value: "region": container first of spec.jobTemplate sets this variable itself. Remove it there, or rename the parameter`,
		}},
		{"a backfill of too many times", func(c *stablev1.CronTab) {
			c.Spec.Schedule = "* * * * *"
			withBackfill(func(b *stablev1.Backfill) { b.From = metav1.NewTime(at("11:53:00").AddDate(0, 0, -7)) })(c)
		}, []string{
			`spec.backfill.to: Invalid value: "2026-03-04T11:52:00Z": the range has 10080 scheduled times, more than 10000: backfill a part of it at a time`,
		}},
		{"unknown daylight saving rule", func(c *stablev1.CronTab) { c.Spec.DaylightSaving = "Never" }, []string{
			`spec.daylightSaving: Invalid value: "Never": unknown daylight saving rule "Never"; must be Once or Literal`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
			test.change(cronTab)
			var got []string
			for _, mistake := range Validate(cronTab) {
				got = append(got, mistake.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	now := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		spec stablev1.CronTabSpec
		want []string
	}{
		{"on demand only", stablev1.CronTabSpec{}, nil},
		{"every day", stablev1.CronTabSpec{Schedule: "@daily"}, nil},
		{"no matching date", stablev1.CronTabSpec{Schedule: "0 0 30 2 *"}, []string{neverRuns}},
		{"after notAfter", stablev1.CronTabSpec{Schedule: "@daily", NotAfter: &metav1.Time{Time: now.Add(-time.Hour)}}, []string{neverRuns}},
		{"no matching date, suspended", stablev1.CronTabSpec{Schedule: "0 0 30 2 *", Suspend: ptr.To(true)}, nil},
		{"invalid schedule", stablev1.CronTabSpec{Schedule: "x"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Warnings(&stablev1.CronTab{Spec: test.spec}, now)); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// fullForm converts the jobTemplate to the form with a Job spec.
func fullForm(c *stablev1.CronTab) {
	template := c.Spec.JobTemplate.JobTemplateSpec()
	template.Spec.TTLSecondsAfterFinished = ptr.To[int32](60)
	c.Spec.JobTemplate = &stablev1.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}, Spec: &template.Spec,
	}
}

// fakeAPI is a client that returns a fixed error and warnings for every creation.
type fakeAPI struct {
	client.Writer
	err      error
	warnings []string
	job      *batchv1.Job // the last one
}

func (a *fakeAPI) Create(ctx context.Context, object client.Object, _ ...client.CreateOption) error {
	a.job = object.(*batchv1.Job)
	for _, text := range a.warnings {
		kube.WarningsToContext{}.HandleWarningHeaderWithContext(ctx, 299, "-", text)
	}
	return a.err
}

func (a *fakeAPI) trial() *Trial {
	return NewTrial(a, nil, clocktesting.NewFakePassiveClock(noon))
}

// invalid returns the error of an API server that rejects a Job as invalid.
func invalid(mistakes ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "tick-1772625600", mistakes)
}

// The Job of the dry run equals that of a run, except for fields that require a stored CronTab.
func TestTrialJob(t *testing.T) {
	cronTab := newCronTab(fullForm)
	before := cronTab.DeepCopy()
	api := &fakeAPI{}
	if mistakes, warnings := api.trial().Try(t.Context(), cronTab); len(mistakes) > 0 || len(warnings) > 0 {
		t.Errorf("got %v and %q, want nothing", mistakes, warnings)
	}
	if diff := cmp.Diff(before, cronTab); diff != "" {
		t.Errorf("the CronTab was changed (-before +after):\n%s", diff)
	}
	template := cronTab.Spec.JobTemplate.JobTemplateSpec()
	want := newJob(cronTab, &template, &pendingRun{name: "tick-1772625600", at: noon}, time.UTC)
	want.OwnerReferences, want.Spec.TTLSecondsAfterFinished = nil, ptr.To[int32](60)
	if diff := cmp.Diff(want, api.job); diff != "" {
		t.Errorf("the Job (-want +got):\n%s", diff)
	}

	api = &fakeAPI{}
	cronTab = &stablev1.CronTab{}
	if mistakes, warnings := api.trial().Try(t.Context(), cronTab); len(mistakes) > 0 || len(warnings) > 0 || api.job != nil {
		t.Errorf("without a jobTemplate: got %v, %q and %v, want nothing", mistakes, warnings, api.job)
	}
}

func TestTrialReportsErrors(t *testing.T) {
	pod := field.NewPath("spec", "template", "spec")
	image := field.Required(pod.Child("containers").Index(0).Child("image"), "")
	volume := field.Duplicate(pod.Child("volumes").Index(1).Child("name"), "a")
	deadline := field.Invalid(field.NewPath("spec", "activeDeadlineSeconds"), int64(-1), "must be greater than or equal to 0")
	policy := field.NotSupported(pod.Child("restartPolicy"), corev1.RestartPolicyAlways, []corev1.RestartPolicy{"OnFailure", "Never"})
	label := field.Invalid(field.NewPath("metadata", "labels"), "-", "must begin with an alphanumeric character")
	name := field.Invalid(field.NewPath("metadata", "name"), "tick-1772625600", "is too long for its Pods")
	owner := field.Invalid(field.NewPath("metadata", "ownerReferences").Index(0), "x", "is of no use")
	for _, test := range []struct {
		name        string
		answer      error
		short, full []string
	}{
		{"nothing", nil, nil, nil},
		{"of the pod", invalid(image, policy, volume), []string{
			`spec.jobTemplate.containers[0].image: Required value`,
			`spec.jobTemplate.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"`,
			`spec.jobTemplate.volumes[1].name: Duplicate value: "a"`,
		}, []string{
			`spec.jobTemplate.spec.template.spec.containers[0].image: Required value`,
			`spec.jobTemplate.spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"`,
			`spec.jobTemplate.spec.template.spec.volumes[1].name: Duplicate value: "a"`,
		}},
		{"of the Job", invalid(deadline), []string{
			`spec.jobTemplate: Invalid value: -1: must be greater than or equal to 0`,
		}, []string{
			`spec.jobTemplate.spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0`,
		}},
		{"of metadata", invalid(label, name, owner), []string{
			`spec.jobTemplate.metadata.labels: Invalid value: "-": must begin with an alphanumeric character`,
			`metadata.name: Invalid value: "tick-1772625600": is too long for its Pods`,
		}, []string{
			`spec.jobTemplate.metadata.labels: Invalid value: "-": must begin with an alphanumeric character`,
			`metadata.name: Invalid value: "tick-1772625600": is too long for its Pods`,
		}},
		{"of fields that the CronTab does not set", invalid(owner, field.InternalError(pod, errors.New("no idea"))), nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := &fakeAPI{err: test.answer}
			for form, tt := range map[string]struct {
				cronTab *stablev1.CronTab
				want    []string
			}{"short": {newCronTab(), test.short}, "full": {newCronTab(fullForm), test.full}} {
				var got []string
				mistakes, _ := api.trial().Try(t.Context(), tt.cronTab)
				for _, mistake := range mistakes {
					got = append(got, mistake.Error())
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("mistakes in the %s form (-want +got):\n%s", form, diff)
				}
			}
		})
	}
}

// Only a rejection as invalid by the API server itself is an error of the CronTab.
func TestTrialIgnoresOtherFailures(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	answer := func(code int32, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonInvalid, Message: message,
			Details: &metav1.StatusDetails{Group: "batch", Kind: "Job", Name: "tick-1772625600", Causes: causes},
		}}
	}
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.template.spec.containers[0].image", Message: "Invalid value: not from here"}
	for name, err := range map[string]error{
		"forbidden":                apierrors.NewForbidden(jobs, "tick-1772625600", errors.New("exceeded quota: few")),
		"a Job of the name":        apierrors.NewAlreadyExists(jobs, "tick-1772625600"),
		"no namespace":             apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team"),
		"no dry run":               apierrors.NewBadRequest(`admission webhook "a" does not support dry run`),
		"too many requests":        apierrors.NewTooManyRequests("later", 1),
		"a timeout":                apierrors.NewTimeoutError("timeout", 1),
		"an internal error":        apierrors.NewInternalError(errors.New("no idea")),
		"no answer":                context.DeadlineExceeded,
		"no API server":            errors.New("connection refused"),
		"a webhook that says so":   answer(http.StatusUnprocessableEntity, `admission webhook "a" denied the request: Job.batch "tick-1772625600" is invalid`, cause),
		"a policy that says so":    answer(http.StatusUnprocessableEntity, `jobs.batch "tick-1772625600" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no`, cause),
		"an answer without causes": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Message: `Job.batch "x" is invalid`}},
	} {
		t.Run(name, func(t *testing.T) {
			if mistakes, _ := (&fakeAPI{err: err}).trial().Try(t.Context(), newCronTab(fullForm)); len(mistakes) > 0 {
				t.Errorf("got %v, want no mistake", mistakes)
			}
		})
	}
}

// Warnings of the API server name the fields of the CronTab.
func TestTrialForwardsWarnings(t *testing.T) {
	api := &fakeAPI{warnings: []string{
		`spec.template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`,
		`would violate PodSecurity "restricted:latest": runAsNonRoot != true`,
		`spec is something that one sees: so it is`,
	}}
	for form, tt := range map[string]struct {
		cronTab *stablev1.CronTab
		path    string
	}{"short": {newCronTab(), "spec.jobTemplate."}, "full": {newCronTab(fullForm), "spec.jobTemplate.spec.template.spec."}} {
		_, got := api.trial().Try(t.Context(), tt.cronTab)
		want := []string{tt.path + `containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`, api.warnings[1], api.warnings[2]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("warnings of the %s form (-want +got):\n%s", form, diff)
		}
	}
}

func TestTrialConcernsTheTemplate(t *testing.T) {
	changed := func(change mutation) *stablev1.CronTab { return newCronTab(fullForm, change) }
	for _, test := range []struct {
		name  string
		after *stablev1.CronTab
		want  bool
	}{
		{"no change", newCronTab(fullForm), false},
		{"schedule changed", changed(func(c *stablev1.CronTab) { c.Spec.Schedule = "@daily" }), false},
		{"suspended", changed(func(c *stablev1.CronTab) { c.Spec.Suspend = ptr.To(true) }), false},
		{"image changed", changed(func(c *stablev1.CronTab) { c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image = "b" }), true},
		{"form changed", newCronTab(), true},
		{"template removed", changed(func(c *stablev1.CronTab) { c.Spec.JobTemplate = nil }), true},
	} {
		if got := (&fakeAPI{}).trial().Concerns(newCronTab(fullForm), test.after); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
