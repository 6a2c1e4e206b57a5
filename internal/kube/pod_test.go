package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodProblem(t *testing.T) {
	waits := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "c", Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	for _, test := range []struct {
		name string
		pod  corev1.PodStatus
		want string
	}{
		{"image", corev1.PodStatus{ContainerStatuses: waits("ImagePullBackOff")}, `Container "c" of Pod "p" waits: ImagePullBackOff, image "i"`},
		{"image, between two attempts", corev1.PodStatus{ContainerStatuses: waits("ErrImagePull")}, `Container "c" of Pod "p" waits: ImagePullBackOff, image "i"`},
		{"init container", corev1.PodStatus{InitContainerStatuses: waits("CrashLoopBackOff"), ContainerStatuses: waits("PodInitializing")},
			`Container "c" of Pod "p" waits: CrashLoopBackOff, image "i"`},
		{"not scheduled", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}}},
			`Pod "p" is not scheduled: 0/1 nodes`},
		{"still starting", corev1.PodStatus{ContainerStatuses: waits("ContainerCreating")}, ""},
		{"running", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := PodProblem(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: test.pod}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
