package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// guestInterval is the interval at which the launcher of a Pod that is not ready is asked why.
	guestInterval = 10 * time.Second
	// importInterval is that of a launcher whose machine has an image from an address: it tells the progress of the import.
	importInterval = 2 * time.Second
	// maxHeard limits an answer of a launcher.
	maxHeard = 8 << 10
	// bootTime is how long a guest may boot before it is asked.
	bootTime = time.Minute
)

// mayBeHindered reports whether the launcher of a Pod may know what hinders its guest, which nobody has paused: the Pod is not ready.
func mayBeHindered(secret *corev1.Secret, pod *corev1.Pod) bool {
	if secret == nil || pod == nil || !isOn(pod) || pod.DeletionTimestamp != nil {
		return false
	}
	if ready := conditionOf(pod, corev1.PodReady); ready == nil || ready.Status == corev1.ConditionTrue {
		return false
	}
	rec, err := recordOf(secret)
	return err == nil && rec.PausedRun != pod.Annotations[annotationRun]
}

// notReady returns the Pod of a machine whose guest may be hindered; nil if it is not.
func (d *Driver) notReady(id backend.Identity) *corev1.Pod {
	secret, err := d.readSecret(d.running, d.cache, id)
	if err != nil {
		return nil
	}
	pod, err := readPod(d.running, d.cache, id)
	if err != nil || !mayBeHindered(secret, pod) {
		return nil
	}
	return pod
}

// followGuest begins to ask the launcher of a Pod that is not ready what hinders its guest. Nothing of that is in the API.
func (d *Driver) followGuest(id backend.Identity) {
	pod := d.notReady(id)
	if pod == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.guests[pod.UID]; known || d.closed {
		return
	}
	d.guests[pod.UID] = ""
	interval := guestInterval
	if imports(pod) {
		interval = importInterval
	}
	d.watches.Go(func() { d.askGuest(id, pod.UID, interval) })
}

// imports reports whether the launcher of a Pod may import an image.
func imports(pod *corev1.Pod) bool {
	definition, readable := definitionOf(pod)
	return readable && definition.ImageURL != ""
}

// askGuest asks the launcher of a Pod until that is ready, or over.
func (d *Driver) askGuest(id backend.Identity, uid types.UID, interval time.Duration) {
	d.repeat(interval, func() bool {
		d.mu.Lock() // so that followGuest begins again if it is not ready from now on
		pod := d.notReady(id)
		if pod == nil || pod.UID != uid {
			delete(d.guests, uid)
			d.mu.Unlock()
			return false
		}
		d.mu.Unlock()
		if startedAt := machineStatus(pod).State.Running.StartedAt.Time; imports(pod) || agentOf(pod, startedAt) == backend.AgentLost || time.Since(startedAt) > bootTime {
			d.askOnce(id, uid)
		}
		return true
	})
}

// askOnce asks the launcher of a Pod, and notifies the controller of an answer that is not the one before. guests has the Pod until nobody
// wants its answer any more.
func (d *Driver) askOnce(id backend.Identity, uid types.UID) {
	answer, err := d.hear(d.running, id, launcher.GuestPath)
	if err != nil {
		return // it is asked again
	}
	d.mu.Lock()
	before, isWanted := d.guests[uid]
	if isWanted {
		d.guests[uid] = answer
	}
	d.mu.Unlock()
	if isWanted && answer != before {
		d.notifyChange(id)
	}
}

// hear returns what the launcher of a machine answers at a path.
func (d *Driver) hear(ctx context.Context, id backend.Identity, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelTimeout)
	defer cancel()
	conn, err := d.connect(ctx, id, "the launcher", path)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	raw, err := io.ReadAll(io.LimitReader(conn, maxHeard))
	return string(raw), err
}

// addGuest adds what hinders the guest of a server, and the progress of an import, as far as its launcher says so.
func (d *Driver) addGuest(server *backend.Server, secret *corev1.Secret, pod *corev1.Pod) {
	if server.State != backend.StateRunning || server.Task != backend.TaskNone || !mayBeHindered(secret, pod) {
		return
	}
	d.mu.Lock()
	answer := d.guests[pod.UID]
	d.mu.Unlock()
	var guest launcher.Guest
	if json.Unmarshal([]byte(answer), &guest) != nil {
		return // nothing yet
	}
	server.Message = guest.Halted
	if server.Agent == backend.AgentWaiting && guest.Progress != "" {
		server.Progress = guest.Progress
	}
	if guest.Silence != nil && server.Agent != backend.AgentNone {
		server.Silence, server.Agent = ptr.To(backend.Silence(*guest.Silence)), backend.AgentWaiting // also if it answered before a reboot
	}
}

// checkMemory rejects less memory than the guest of a machine that runs needs to boot. Only its launcher knows; that of a machine which is off
// says so at the next start.
func (d *Driver) checkMemory(ctx context.Context, machine *backend.Machine) error {
	_, pod, err := d.seen(ctx, machine.Identity)
	if err != nil || machine.Image != nil || pod == nil || !isOn(pod) || pod.DeletionTimestamp != nil {
		return err
	}
	answer, err := d.hear(ctx, machine.Identity, launcher.GuestPath)
	if err != nil {
		return err
	}
	var guest launcher.Guest
	if err := json.Unmarshal([]byte(answer), &guest); err != nil {
		return fmt.Errorf("ask the launcher of machine %s: %w", machine.UID, err)
	}
	if err := guestimage.CheckMemory(guest.MinimumMemory, machine.MemoryBytes); err != nil {
		return &backend.FieldError{Field: "spec.resource.memory", Message: err.Error()}
	}
	return nil
}
