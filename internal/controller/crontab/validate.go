package crontab

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
)

// neverRuns is the message for a schedule without a future run.
const neverRuns = "The schedule has no future run. Check spec.schedule, spec.notAfter and spec.excludeDates"

// Validate returns all invalid fields of a CronTab that the CRD does not catch. If such a CronTab
// is stored without the webhook, its conditions and events report the same errors.
func Validate(cronTab *stablev1.CronTab) field.ErrorList {
	times, mistakes := crontab.New(cronTab)
	all := mistakes.Fields()
	if spec := cronTab.Spec.Backfill; spec != nil && times != nil {
		if _, err := times.NewBackfill(spec); err != nil {
			all = append(all, field.Invalid(field.NewPath("spec", "backfill", "to"), spec.To.UTC().Format(time.RFC3339), err.Error()))
		}
	}
	if template := cronTab.Spec.JobTemplate; template != nil {
		full := template.JobTemplateSpec()
		all = append(all, crontab.ParameterConflicts(&cronTab.Spec, &full.Spec.Template.Spec)...)
	}
	return all
}

// ValidateChange refuses a request that would take the place of one whose run has not started.
func ValidateChange(before, after *stablev1.CronTab) field.ErrorList {
	open := crontab.OpenRequest(before)
	if at := requests.At(after.Spec.RunRequestedAt); open.IsZero() || at.IsZero() || at.Equal(open) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "runRequestedAt"), fmt.Sprintf("the run requested at %s has not started yet, and this request would replace it. "+
		"Wait until status.lastRunRequestedAt has that time, or remove the field to cancel that run", formatRequest(open)))}
}

// Warnings returns admission warnings about a valid CronTab.
func Warnings(cronTab *stablev1.CronTab, now time.Time) []string {
	times, mistakes := crontab.New(cronTab)
	if len(mistakes) > 0 || times.IsEmpty || isSuspended(cronTab) {
		return nil
	}
	if _, found := times.Next(now); !found {
		return []string{neverRuns}
	}
	return nil
}

// dryRunTimeout limits a dry run. An admission request has 2 s, for up to two of them.
const dryRunTimeout = 800 * time.Millisecond

// Trial validates what only the API server knows: a jobTemplate by a dry run of its Job, and whether CronTabs run after each other in a
// circle.
type Trial struct {
	dryRun client.Writer
	live   client.Reader
	clock  clock.PassiveClock
}

// NewTrial returns a Trial. The client must send dry-run requests only and pass warnings to
// kube.WithWarnings. The reader reads CronTabs from the API server.
func NewTrial(dryRun client.Writer, live client.Reader, clock clock.PassiveClock) *Trial {
	return &Trial{dryRun: dryRun, live: live, clock: clock}
}

// Concerns reports whether a change needs a new dry run.
func (t *Trial) Concerns(before, after *stablev1.CronTab) bool {
	return !equality.Semantic.DeepEqual(before.Spec.JobTemplate, after.Spec.JobTemplate) || !slices.Equal(before.Spec.After, after.Spec.After)
}

// Try returns all errors in the jobTemplate for which the API server would reject the Job as
// invalid, with the fields of the CronTab, and its warnings. Any other failure, such as an exceeded
// quota or a timeout, may be gone when a run is due and is not an error.
func (t *Trial) Try(ctx context.Context, cronTab *stablev1.CronTab) (field.ErrorList, []string) {
	template := cronTab.Spec.JobTemplate
	if template == nil {
		return nil, nil
	}
	limited, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	if names := circle(limited, t.live, cronTab); names != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "after"), strings.Join(afterOf(cronTab), ", "), "CronTabs would run after each other in a circle: "+strings.Join(names, ", "))}, nil
	}
	var warnings []string
	quiet := logr.NewContext(kube.WithWarnings(limited, &warnings), logr.Discard()) // the client logs a timeout as an error
	err := t.dryRun.Create(quiet, newDryRunJob(cronTab, t.clock.Now()))
	var mistakes field.ErrorList
	for _, cause := range statusCauses(err) {
		if mistake := toFieldError(cause, template); mistake != nil {
			mistakes = append(mistakes, mistake)
		}
	}
	if err != nil && len(mistakes) == 0 {
		log.FromContext(ctx).V(1).Info("Dry run of the jobTemplate was inconclusive", "CronTab", client.ObjectKeyFromObject(cronTab), "response", err.Error())
	}
	for i, warning := range warnings {
		warnings[i] = rewriteWarning(warning, template)
	}
	return mistakes, warnings
}

// newDryRunJob returns the Job of a run at a time, with the TTL that is set only later.
func newDryRunJob(cronTab *stablev1.CronTab, at time.Time) *batchv1.Job {
	full := cronTab.Spec.JobTemplate.JobTemplateSpec()
	template := full.DeepCopy()
	job := newJob(cronTab, template, &pendingRun{name: jobName(cronTab, at), at: at, values: crontab.Defaults(&cronTab.Spec)}, time.UTC)
	// A CronTab that is not stored yet has no UID.
	job.OwnerReferences = nil
	// Otherwise an invalid TTL would fail later, when the run is recorded.
	job.Spec.TTLSecondsAfterFinished = template.Spec.TTLSecondsAfterFinished
	return job
}

// statusCauses returns the causes if the API server rejected the Job as invalid. Admission policies
// and webhooks may answer with the same code, but with another message.
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

// userErrorTypes are the types of errors that a user can fix in a field.
var userErrorTypes = []field.ErrorType{
	field.ErrorTypeNotFound, field.ErrorTypeRequired, field.ErrorTypeDuplicate, field.ErrorTypeInvalid, field.ErrorTypeNotSupported,
	field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTooFew, field.ErrorTypeTypeInvalid, field.ErrorTypeTooShort,
}

// toFieldError returns the error of the CronTab field for an invalid Job field; nil if the field
// does not come from the CronTab.
func toFieldError(cause metav1.StatusCause, template *stablev1.JobTemplate) *field.Error {
	path, kind := cronTabField(cause.Field, template), field.ErrorType(cause.Type)
	if path == "" || !slices.Contains(userErrorTypes, kind) {
		return nil
	}
	detail := strings.TrimPrefix(strings.TrimPrefix(cause.Message, kind.String()), ": ") // includes the value
	return &field.Error{Type: kind, Field: path, BadValue: field.OmitValueType{}, Detail: detail}
}

// cronTabField returns the CronTab field that sets a Job field; "" if there is none.
func cronTabField(ofJob string, template *stablev1.JobTemplate) string {
	const jobTemplate, pod = "spec.jobTemplate", "spec.template.spec"
	switch {
	case ofJob == "metadata.name":
		return ofJob // Pods of an indexed Job have its name in their host names
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

// isFieldIn reports whether a path is outer or inside outer.
func isFieldIn(path, outer string) bool {
	rest, found := strings.CutPrefix(path, outer)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// rewriteWarning replaces the Job field at the start of a warning with the CronTab field.
func rewriteWarning(warning string, template *stablev1.JobTemplate) string {
	path, rest, found := strings.Cut(warning, ": ")
	if !found || !isFieldIn(path, "spec") || strings.Contains(path, " ") {
		return warning
	}
	return cronTabField(path, template) + ": " + rest
}
