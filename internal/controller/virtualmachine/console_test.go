package virtualmachine

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A machine that was created just now is not in the cache yet.
func TestLocateANewMachine(t *testing.T) {
	builder := func() *clientfake.ClientBuilder {
		return clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme))
	}
	vm := newVM(func(vm *v1alpha1.VirtualMachine) { vm.Namespace = "default" })
	vm.Status.Host = nil
	drivers := NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return fake.New(fake.Options{}), nil }}, clock.RealClock{})
	l := NewLocator(builder().Build(), builder().WithObjects(vm).Build(), drivers)
	if _, id, err := l.Locate(t.Context(), vm.Namespace, vm.Name); err != nil || id.UID != vm.UID {
		t.Errorf("%+v, %v", id, err)
	}
	if _, _, err := l.Locate(t.Context(), vm.Namespace, "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a machine that does not exist: %v", err)
	}
}
