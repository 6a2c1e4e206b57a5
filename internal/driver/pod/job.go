package pod

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// jobMemory is the memory of the Pod of a job: the launcher and qemu-img.
	jobMemory = 128 << 20
	// jobMilliCPU are the processors that it requests, in thousandths.
	jobMilliCPU = 100
	// jobGrace is how long it has to end, in seconds. A job that is killed leaves nothing behind that matters.
	jobGrace = 10
)

// newJobPod returns the Pod of a job, which still needs its volumes and its owner. template is that of its machine; nil without one.
func newJobPod(meta metav1.ObjectMeta, job launcher.Job, image string, template *v1alpha1.PodTemplate) *corev1.Pod {
	pod := newRestrictedPod(meta, image, corev1.EnvVar{Name: launcher.JobVariable, Value: string(mustJSON(job))})
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](jobGrace)
	memory := *resource.NewQuantity(jobMemory, resource.BinarySI)
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(jobMilliCPU, resource.DecimalSI), corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
	}
	if template != nil {
		pod.Spec.Tolerations = template.Spec.Tolerations
	}
	addRunDir(&pod.Spec)
	return pod
}

// jobResult returns how the job of a Pod has ended; false if it has not reported that.
func jobResult(pod *corev1.Pod) (result launcher.JobResult, ok bool) {
	status := machineStatus(pod)
	if status == nil || status.State.Terminated == nil {
		return result, false
	}
	return result, json.Unmarshal([]byte(status.State.Terminated.Message), &result) == nil
}
