package crontab

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// jobName returns the name of the Job of a run. It is what makes a run happen once: the
// API server refuses a second Job of that name.
func jobName(cronTab *stablev1.CronTab, at time.Time) string {
	return cronTab.Name + "-" + strconv.FormatInt(at.Unix(), 10)
}

// newJob returns the Job of a run: what the controller of CronJob makes of the same
// template. Its pods tell their nominal time as well, because a container can read the
// annotations of its pod, and not those of the Job.
func newJob(cronTab *stablev1.CronTab, template *batchv1.JobTemplateSpec, s *start, zone *time.Location) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            s.name,
			Namespace:       cronTab.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronTab, kind)},
		},
		Spec: template.Spec,
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	// What is copied from a template may be copied from a Job.
	delete(job.Annotations, stablev1.RunRequestedAtAnnotation)
	delete(job.Annotations, stablev1.TTLAnnotation)
	nominal := s.at.In(zone).Format(time.RFC3339)
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = nominal
	pod := &job.Spec.Template
	pod.Annotations = maps.Clone(pod.Annotations) // the template is the caller's
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.CronJobScheduledTimestampAnnotation, nominal)
	if s.manual {
		job.Annotations[stablev1.RunRequestedAtAnnotation] = s.at.UTC().Format(time.RFC3339)
	}
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		// Until the status says that the run has happened, the Job is the only proof of
		// it and must not go by itself.
		job.Annotations[stablev1.TTLAnnotation] = strconv.FormatInt(int64(*ttl), 10)
		job.Spec.TTLSecondsAfterFinished = nil
	}
	return job
}

// heldTTL returns the time to live that a Job gets when its run is recorded; nil if it
// has got it, or never gets one.
func heldTTL(r run) *int32 {
	if r.job == nil {
		return nil
	}
	seconds, err := strconv.ParseInt(r.job.Annotations[stablev1.TTLAnnotation], 10, 32)
	if err != nil {
		return nil
	}
	ttl := int32(seconds)
	return &ttl
}

// releasePatch is a merge patch that lets the time to live of a Job begin. It changes
// this Job and no later one of its name.
func releasePatch(r run) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":         r.uid,
			"annotations": map[string]any{stablev1.TTLAnnotation: nil},
		},
		"spec": map[string]any{"ttlSecondsAfterFinished": heldTTL(r)},
	})
}

// templateOf returns the template of a CronTab, which may be used up; nil if it has none.
func templateOf(cronTab *stablev1.CronTab) (*batchv1.JobTemplateSpec, error) {
	template := cronTab.Spec.JobTemplate
	if compact, found := cronTab.Annotations[compactTemplate]; found {
		template = &stablev1.JobTemplate{}
		if err := json.Unmarshal([]byte(compact), template); err != nil {
			return nil, fmt.Errorf("read the jobTemplate of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
		}
	}
	if template == nil {
		return nil, nil
	}
	full := template.JobTemplateSpec()
	return full.DeepCopy(), nil
}
