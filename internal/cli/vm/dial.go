package vm

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/object"
)

// firstAttempt is the timeout of the first attempt to connect to a machine; it grows. A guest that boots answers nothing,
// and TCP repeats an attempt less and less often.
const firstAttempt = time.Second

// bootTimeout is the longest time that a connection waits for a machine that boots.
const bootTimeout = 5 * time.Minute

// sshPort is the port of SSH servers.
const sshPort = 22

// dial connects to a port of a machine. A machine that boots does not accept connections yet, so they are repeated, and
// progress gets what the command waits for. It fails if the machine will not accept one without a request of the user.
func (m *machines) dial(ctx context.Context, name string, port uint16, progress io.Writer) (*client.PortConn, error) {
	var conn *client.PortConn
	timeout := firstAttempt
	err := object.Until(ctx, bootTimeout, progress, func(ctx context.Context) (bool, string, error) {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var err error
		conn, err = client.DialPort(attempt, m.API.Config, m.API.Namespace, name, port)
		switch {
		case err == nil:
			return true, "", nil
		case attempt.Err() != nil && ctx.Err() == nil:
			timeout = min(timeout*9/8, bootTimeout)
		case !apierrors.IsServiceUnavailable(err) && !apierrors.IsConflict(err):
			return false, "", err
		}
		vm, getErr := m.Find(ctx, name)
		if getErr != nil {
			return false, "", getErr
		}
		line, err := awaited(vm, port, err)
		return false, line, err
	})
	return conn, err
}

// awaited returns what a connection to a port of a machine waits for after a failed attempt, or an error if it would wait in vain.
func awaited(vm *v1alpha1.VirtualMachine, port uint16, failed error) (string, error) {
	if err := whyOff(vm); err != nil {
		return "", err
	}
	if currentReason(vm) == v1alpha1.ReasonAsleep && apierrors.IsConflict(failed) {
		return "", off(vm, "asleep", "wake") // the connection would have woken it otherwise
	}
	if !isReady(vm) || currentReason(vm) == v1alpha1.ReasonAsleep {
		return describeStatus(vm), nil
	}
	line := fmt.Sprintf("%s: port %d of the guest does not answer yet", vm.Name, port)
	if port != sshPort {
		return line, nil
	}
	if apierrors.IsServiceUnavailable(failed) && isDefaultGuest(vm) && !hasSSHKey(vm) {
		return "", fmt.Errorf("the guest of VirtualMachine %s has no SSH server, because no SSH key is in its spec.cloudInit. "+
			"Add yours to ssh_authorized_keys of spec.cloudInit.userData, and restart it: keelson vm restart %[1]s. "+
			"A machine that keelson vm create makes has your key, or that of --ssh-key", vm.Name)
	}
	return line + "; a guest with an SSH server that accepts your key is needed, see --ssh-key of keelson vm create", nil
}

// isDefaultGuest reports whether a machine has the default guest.
func isDefaultGuest(vm *v1alpha1.VirtualMachine) bool {
	return vm.Spec.Image == nil || vm.Spec.Image.Name == v1alpha1.ImageTiny
}

// hasSSHKey reports whether an SSH key may be in the user data of a machine.
func hasSSHKey(vm *v1alpha1.VirtualMachine) bool {
	c := vm.Spec.CloudInit
	return c != nil && (c.UserDataFrom != nil || strings.Contains(c.UserData, "ssh_authorized_keys") || strings.Contains(c.UserData, "ssh-authorized-keys"))
}

// whyOff returns an error if a machine does not run until the user changes that; it has the command.
func whyOff(vm *v1alpha1.VirtualMachine) error {
	if !vm.DeletionTimestamp.IsZero() {
		return fmt.Errorf("VirtualMachine %s/%s is being deleted", vm.Namespace, vm.Name)
	}
	switch vm.Spec.Action {
	case v1alpha1.ActionStopped:
		return off(vm, "stopped", "start")
	case v1alpha1.ActionPaused:
		return off(vm, "paused", "resume")
	case v1alpha1.ActionAsleep:
		return off(vm, "asleep", "wake")
	}
	switch currentReason(vm) {
	case v1alpha1.ReasonGuestStopped:
		return off(vm, "off, because its guest has stopped", "restart")
	case v1alpha1.ReasonStopped: // it was off when its schedule had it sleep
		return off(vm, "off until spec.powerSchedule wakes it", "wake")
	case v1alpha1.ReasonAsleep, v1alpha1.ReasonFallingAsleep:
		if vm.Spec.Idle == nil || !ptr.Deref(vm.Spec.Idle.WakeOnConnection, true) {
			return off(vm, "asleep", "wake")
		}
	}
	return nil
}

// off returns the error for a machine that does not run. verb is the command that changes that.
func off(vm *v1alpha1.VirtualMachine, state, verb string) error {
	return fmt.Errorf("VirtualMachine %s is %s; %s it first: keelson vm %[3]s %[1]s", vm.Name, state, verb)
}

// currentReason returns the reason of Ready; "" if it is that of an earlier spec.
func currentReason(vm *v1alpha1.VirtualMachine) string {
	if ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.ObservedGeneration == vm.Generation {
		return ready.Reason
	}
	return ""
}
