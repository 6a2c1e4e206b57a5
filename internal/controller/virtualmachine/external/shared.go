package external

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Changes enqueues the objects that a driver names when they have changed.
func Changes[I any](watch func(notify func(I)), key func(I) client.ObjectKey) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		watch(func(id I) { kube.Enqueue(q, 0, key(id)) })
		return nil
	})
}

// NewCondition returns a condition Ready.
func NewCondition(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: kube.Sentence(fmt.Sprintf(message, args...))}
}

// DescribeHosts says that another host has something of an object, and what to do. resource is the short name for kubectl.
func DescribeHosts(what string, has *v1alpha1.Host, here v1alpha1.Host, object client.Object, resource string) string {
	return fmt.Sprintf("%s is on %s (%s), and this manager runs on %s (%s). Nothing is done here: run the manager on that host. "+
		"If the host is permanently lost, run: kubectl annotate --namespace %s %s %s %s=%s", what, has.Name, has.ID, here.Name, here.ID,
		object.GetNamespace(), resource, object.GetName(), v1alpha1.AnnotationForgetHost, has.ID)
}
