package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// haltInterval is the interval at which the launcher of a Pod that is not ready is asked why.
	haltInterval = 10 * time.Second
	// bootTime is how long a guest may boot before it is asked.
	bootTime = time.Minute
)

// mayBeHalted reports whether the launcher of a Pod may know why its guest, which nobody has paused, does not run: the Pod is not ready.
func mayBeHalted(secret *corev1.Secret, pod *corev1.Pod) bool {
	if secret == nil || pod == nil || !isOn(pod) || pod.DeletionTimestamp != nil {
		return false
	}
	if ready := conditionOf(pod, corev1.PodReady); ready == nil || ready.Status == corev1.ConditionTrue {
		return false
	}
	rec, err := recordOf(secret)
	return err == nil && rec.PausedRun != pod.Annotations[annotationRun]
}

// notReady returns the Pod of a machine that may be halted; nil if it is not.
func (d *Driver) notReady(id backend.Identity) *corev1.Pod {
	secret, err := d.readSecret(d.running, d.cache, id)
	if err != nil {
		return nil
	}
	pod, err := readPod(d.running, d.cache, id)
	if err != nil || !mayBeHalted(secret, pod) {
		return nil
	}
	return pod
}

// followHalted begins to ask the launcher of a Pod that is not ready whether its guest is halted. Nothing of that is in the API.
func (d *Driver) followHalted(id backend.Identity) {
	pod := d.notReady(id)
	if pod == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.halted[pod.UID]; known || d.closed {
		return
	}
	d.halted[pod.UID] = ""
	d.watches.Go(func() { d.askHalted(id, pod.UID) })
}

// askHalted asks the launcher of a Pod until that is ready, or over.
func (d *Driver) askHalted(id backend.Identity, uid types.UID) {
	d.repeat(haltInterval, func() bool {
		d.mu.Lock() // so that followHalted begins again if it is not ready from now on
		pod := d.notReady(id)
		if pod == nil || pod.UID != uid {
			delete(d.halted, uid)
			d.mu.Unlock()
			return false
		}
		d.mu.Unlock()
		if startedAt := machineStatus(pod).State.Running.StartedAt.Time; agentOf(pod, startedAt) == backend.AgentLost || time.Since(startedAt) > bootTime {
			_, _ = d.askOnce(id, uid, launcher.HaltedPath, d.halted) // it is asked again
		}
		return true
	})
}

// addHalted adds why the guest of a server does not run.
func (d *Driver) addHalted(server *backend.Server, secret *corev1.Secret, pod *corev1.Pod) {
	if server.State != backend.StateRunning || server.Task != backend.TaskNone || !mayBeHalted(secret, pod) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	server.Message = d.halted[pod.UID]
}
