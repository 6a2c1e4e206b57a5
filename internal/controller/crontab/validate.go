package crontab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/kube"
)

// neverRuns is what is said of a CronTab that has a schedule and no run to come.
const neverRuns = "No time is left that matches the schedule. Look at spec.schedule, spec.notAfter and spec.excludeDates"

// Validate returns every mistake of a CronTab that its definition lets through, with its field: what the conditions of a
// CronTab that is stored all the same say, or the event about its annotation.
func Validate(cronTab *stablev1.CronTab) field.ErrorList {
	var all field.ErrorList
	_, mistakes := cronOptions(cronTab)
	for _, mistake := range mistakes {
		all = append(all, mistake.fieldError())
	}
	if len(mistakes) == 0 {
		if _, mistake := newSchedule(cronTab); mistake != nil {
			all = append(all, mistake.fieldError())
		}
	}
	if _, err := requestedTime(cronTab); err != nil {
		all = append(all, field.Invalid(field.NewPath("metadata", "annotations").Key(stablev1.RunRequestedAtAnnotation),
			cronTab.Annotations[stablev1.RunRequestedAtAnnotation], "must be a time in RFC 3339, such as 2026-12-24T18:00:00Z"))
	}
	return all
}

// fieldError returns the mistake as the API server says it, with the place of what is wrong in a schedule.
func (e *specError) fieldError() *field.Error {
	detail := e.err.Error()
	var parse *cron.ParseError
	if errors.As(e.err, &parse) {
		detail = parse.Detail(e.value)
	}
	return field.Invalid(e.field, e.value, detail)
}

// Warnings returns what somebody should know who writes a CronTab at this time, although it is no mistake.
func Warnings(cronTab *stablev1.CronTab, now time.Time) []string {
	times, mistake := newSchedule(cronTab)
	if mistake != nil || times.empty || isSuspended(cronTab) {
		return nil
	}
	if _, found := times.next(now); !found {
		return []string{neverRuns}
	}
	return nil
}

// dryRunTimeout bounds a trial. An admission request has 2 s for up to two of them.
const dryRunTimeout = 800 * time.Millisecond

// Trial finds what is wrong with a jobTemplate and what only the API server knows: it asks it to try the Job of a run.
type Trial struct {
	dryRun client.Writer
	clock  clock.PassiveClock
}

// NewTrial returns a Trial. With dryRun nothing may be stored, and the warnings of its requests should go where
// kube.WithWarnings says.
func NewTrial(dryRun client.Writer, clock clock.PassiveClock) *Trial {
	return &Trial{dryRun: dryRun, clock: clock}
}

// Concerns reports whether a change may have made a mistake that Try finds.
func (t *Trial) Concerns(before, after *stablev1.CronTab) bool {
	return !equality.Semantic.DeepEqual(before.Spec.JobTemplate, after.Spec.JobTemplate)
}

// Try returns every mistake of the jobTemplate for which the API server would call the Job invalid, with its field in the
// CronTab, and what it warns of. If it refuses the Job for any other reason, such as a quota, or cannot be asked, that may be
// another thing when a run is due, and is none.
func (t *Trial) Try(ctx context.Context, cronTab *stablev1.CronTab) (field.ErrorList, []string) {
	template := cronTab.Spec.JobTemplate
	if template == nil {
		return nil, nil
	}
	limited, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	var warnings []string
	quiet := logr.NewContext(kube.WithWarnings(limited, &warnings), logr.Discard()) // an answer that is late is an error to the client
	err := t.dryRun.Create(quiet, newDryRunJob(cronTab, t.clock.Now()))
	var mistakes field.ErrorList
	for _, cause := range statusCauses(err) {
		if mistake := toFieldError(cause, template); mistake != nil {
			mistakes = append(mistakes, mistake)
		}
	}
	if err != nil && len(mistakes) == 0 {
		log.FromContext(ctx).V(1).Info("A jobTemplate was not tried to its end", "CronTab", client.ObjectKeyFromObject(cronTab), "answer", err.Error())
	}
	for i, warning := range warnings {
		warnings[i] = rewriteWarning(warning, template)
	}
	return mistakes, warnings
}

// newDryRunJob returns the Job of a run at that time, with what it gets later already in it.
func newDryRunJob(cronTab *stablev1.CronTab, at time.Time) *batchv1.Job {
	full := cronTab.Spec.JobTemplate.JobTemplateSpec()
	template := full.DeepCopy()
	job := newJob(cronTab, template, &pendingRun{name: jobName(cronTab, at), at: at}, time.UTC)
	// A CronTab that is not stored owns nothing.
	job.OwnerReferences = nil
	// A Job that is there would refuse it later, with each attempt to record its run.
	job.Spec.TTLSecondsAfterFinished = template.Spec.TTLSecondsAfterFinished
	return job
}

// statusCauses returns why the API server calls a Job invalid; none if that is not what it says. Policies and webhooks for Jobs
// may answer with the same code, and speak of themselves first.
func statusCauses(err error) []metav1.StatusCause {
	var answer apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &answer) {
		return nil
	}
	status := answer.Status()
	if status.Details == nil || !strings.HasPrefix(status.Message, `Job.batch "`) {
		return nil
	}
	return status.Details.Causes
}

// userErrorTypes are what may be wrong with a field.
var userErrorTypes = []field.ErrorType{
	field.ErrorTypeNotFound, field.ErrorTypeRequired, field.ErrorTypeDuplicate, field.ErrorTypeInvalid, field.ErrorTypeNotSupported,
	field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTooFew, field.ErrorTypeTypeInvalid, field.ErrorTypeTooShort,
}

// toFieldError returns the mistake of a CronTab for why its Job is invalid, in the words of the API server; nil if that is none
// of the CronTab.
func toFieldError(cause metav1.StatusCause, template *stablev1.JobTemplate) *field.Error {
	path, kind := cronTabField(cause.Field, template), field.ErrorType(cause.Type)
	if path == "" || !slices.Contains(userErrorTypes, kind) {
		return nil
	}
	detail := strings.TrimPrefix(strings.TrimPrefix(cause.Message, kind.String()), ": ") // the value is in it
	return &field.Error{Type: kind, Field: path, BadValue: field.OmitValueType{}, Detail: detail}
}

// cronTabField returns the field of a CronTab from which its Job has a field; "" if it has it from nowhere.
func cronTabField(ofJob string, template *stablev1.JobTemplate) string {
	const jobTemplate, pod = "spec.jobTemplate", "spec.template.spec"
	switch {
	case ofJob == "metadata.name":
		return ofJob // the name of an indexed Job is part of the host names of its Pods
	case isFieldIn(ofJob, "metadata.labels"), isFieldIn(ofJob, "metadata.annotations"):
		return jobTemplate + "." + ofJob
	case !isFieldIn(ofJob, "spec"):
		return ""
	case template.Spec != nil:
		return jobTemplate + "." + ofJob
	case isFieldIn(ofJob, pod):
		return jobTemplate + strings.TrimPrefix(ofJob, pod)
	default:
		return jobTemplate
	}
}

// isFieldIn reports whether a field is that one, or in it.
func isFieldIn(path, outer string) bool {
	rest, found := strings.CutPrefix(path, outer)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// rewriteWarning returns a warning about a Job, which begins with a field or with something else, for who has written the
// CronTab.
func rewriteWarning(warning string, template *stablev1.JobTemplate) string {
	path, rest, found := strings.Cut(warning, ": ")
	if !found || !isFieldIn(path, "spec") || strings.Contains(path, " ") {
		return warning
	}
	return cronTabField(path, template) + ": " + rest
}
