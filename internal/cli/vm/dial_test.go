package vm

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// machineWith returns a machine whose Ready is that of its spec, and has this status and reason.
func machineWith(status metav1.ConditionStatus, reason string, change func(*v1alpha1.VirtualMachine)) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", Generation: 2}}
	vm.Spec.Action = v1alpha1.ActionActive
	vm.Status.PrintableStatus = v1alpha1.PrintableStatus(reason)
	vm.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "Why", ObservedGeneration: 2}}
	if change != nil {
		change(vm)
	}
	return vm
}

func TestAwaited(t *testing.T) {
	action := func(a v1alpha1.Action) func(*v1alpha1.VirtualMachine) {
		return func(vm *v1alpha1.VirtualMachine) { vm.Spec.Action = a }
	}
	idle := func(wakes *bool) func(*v1alpha1.VirtualMachine) {
		return func(vm *v1alpha1.VirtualMachine) {
			vm.Spec.Idle = &v1alpha1.VirtualMachineIdle{WakeOnConnection: wakes}
		}
	}
	cloudInit := func(c v1alpha1.CloudInit) func(*v1alpha1.VirtualMachine) {
		return func(vm *v1alpha1.VirtualMachine) { vm.Spec.CloudInit = &c }
	}
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	conflict := apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("it is off"))
	noAnswer := apierrors.NewServiceUnavailable("connection refused")
	const silent, noServer = "web: port 22 of the guest does not answer yet; a guest with an SSH server", "has no SSH server"
	for _, test := range []struct {
		name       string
		vm         *v1alpha1.VirtualMachine
		port       uint16
		failed     error
		line, fail string
	}{
		{"a stopped machine", machineWith(yes, v1alpha1.ReasonStopped, action(v1alpha1.ActionStopped)), 80, conflict, "", "is stopped; start it first: keelson vm start web"},
		{"one that is being stopped", machineWith(yes, v1alpha1.ReasonGuestReady, action(v1alpha1.ActionStopped)), 80, nil, "", "keelson vm start web"},
		{"a paused one", machineWith(yes, v1alpha1.ReasonPaused, action(v1alpha1.ActionPaused)), 80, nil, "", "is paused; resume it first: keelson vm resume web"},
		{"one that sleeps", machineWith(yes, v1alpha1.ReasonAsleep, action(v1alpha1.ActionAsleep)), 80, conflict, "", "is asleep; wake it first: keelson vm wake web"},
		{"asleep by schedule", machineWith(yes, v1alpha1.ReasonAsleep, nil), 80, conflict, "", "keelson vm wake web"},
		{"off by schedule", machineWith(yes, v1alpha1.ReasonStopped, nil), 80, conflict, "", "keelson vm wake web"},
		{"idle, woken by the user only", machineWith(yes, v1alpha1.ReasonAsleep, idle(ptr.To(false))), 80, conflict, "", "keelson vm wake web"},
		{"idle, woken by the connection", machineWith(yes, v1alpha1.ReasonAsleep, idle(nil)), 80, nil, "web: Asleep", ""},
		{"asleep by schedule, and idle", machineWith(yes, v1alpha1.ReasonAsleep, idle(nil)), 80, conflict, "", "keelson vm wake web"},
		{"its guest powered itself off", machineWith(no, v1alpha1.ReasonGuestStopped, nil), 80, conflict, "", "keelson vm restart web"},
		{"was started just now", machineWith(yes, v1alpha1.ReasonStopped, func(vm *v1alpha1.VirtualMachine) { vm.Generation++ }), 80, conflict, "web: Stopped", ""},
		{"is being deleted", machineWith(yes, v1alpha1.ReasonGuestReady, func(vm *v1alpha1.VirtualMachine) { vm.DeletionTimestamp = ptr.To(metav1.Now()) }), 80, nil, "", "is being deleted"},
		{"boots", machineWith(no, v1alpha1.ReasonGuestBooting, nil), 22, noAnswer, "web: GuestBooting: Why", ""},
		{"a port without a server", machineWith(yes, v1alpha1.ReasonGuestReady, nil), 80, noAnswer, "web: port 80 of the guest does not answer yet", ""},
		{"no key", machineWith(yes, v1alpha1.ReasonGuestReady, nil), 22, noAnswer, "", noServer},
		{"no key, slow", machineWith(yes, v1alpha1.ReasonGuestReady, nil), 22, nil, silent, ""},
		{"other user data", machineWith(yes, v1alpha1.ReasonGuestReady, cloudInit(v1alpha1.CloudInit{UserData: "#cloud-config\n"})), 22, noAnswer, "", noServer},
		{"keys", machineWith(yes, v1alpha1.ReasonGuestReady, cloudInit(v1alpha1.CloudInit{UserData: "ssh_authorized_keys: [a]"})), 22, noAnswer, silent, ""},
		{"keys in a Secret", machineWith(yes, v1alpha1.ReasonGuestReady, cloudInit(v1alpha1.CloudInit{UserDataFrom: &v1alpha1.SecretKey{}})), 22, noAnswer, silent, ""},
		{"an image with keys of its own", machineWith(yes, v1alpha1.ReasonGuestReady, func(vm *v1alpha1.VirtualMachine) { vm.Spec.Image = &v1alpha1.Image{Name: "debian"} }), 22, noAnswer, silent, ""},
	} {
		line, err := awaited(test.vm, test.port, test.failed)
		switch {
		case (test.fail == "") != (err == nil), err != nil && !strings.Contains(err.Error(), test.fail):
			t.Errorf("%s: error %v, want %q", test.name, err, test.fail)
		case !strings.HasPrefix(line, test.line), test.line == "" && line != "":
			t.Errorf("%s: line %q, want %q", test.name, line, test.line)
		}
	}
}

// A connection to a machine that boots is repeated, and the user is told why. One to a machine that is stopped fails.
func TestDial(t *testing.T) {
	booting := machineWith(metav1.ConditionFalse, v1alpha1.ReasonGuestBooting, nil)
	stopped := machineWith(metav1.ConditionFalse, v1alpha1.ReasonStopped, func(vm *v1alpha1.VirtualMachine) { vm.Spec.Action = v1alpha1.ActionStopped })
	for _, test := range []struct {
		vm             *v1alpha1.VirtualMachine
		progress, fail string
	}{{booting, "web: GuestBooting: Why\n", ""}, {stopped, "", "keelson vm start web"}} {
		attempts := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if attempts++; attempts == 3 && test.fail == "" {
				if socket, err := websocket.Accept(w, r, nil); err == nil {
					_ = socket.CloseNow()
				}
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"it is off","code":409}`)
		}))
		c := clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme)).WithObjects(test.vm).Build()
		m := newMachines(c, server.URL)
		var progress bytes.Buffer
		conn, err := m.dial(t.Context(), "web", 22, &progress)
		if (test.fail == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.fail) || progress.String() != test.progress {
			t.Errorf("got %v and %q, want %q and %q", err, progress.String(), test.fail, test.progress)
		}
		if err == nil {
			_ = conn.Close()
		}
		server.Close()
	}
}
