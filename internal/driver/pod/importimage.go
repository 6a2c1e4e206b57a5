package pod

import (
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// importInterval is the interval at which a launcher that imports an image is asked for the progress.
	importInterval = 2 * time.Second
	// maxHeard limits an answer of a launcher.
	maxHeard = 8 << 10
)

// imports reports whether a Pod may be importing an image: its launcher runs, and it has not been ready.
func imports(pod *corev1.Pod) bool {
	status := machineStatus(pod)
	if !isOn(pod) || pod.DeletionTimestamp != nil || agentOf(pod, status.State.Running.StartedAt.Time) != backend.AgentWaiting {
		return false
	}
	definition, readable := definitionOf(pod)
	return readable && definition.ImageURL != ""
}

// followImport begins to ask the launcher of a Pod for the progress of an import, once for each Pod. Nothing else is in the API before the
// machine is ready or has failed.
func (d *Driver) followImport(pod *corev1.Pod) {
	if !imports(pod) {
		if isOver(pod) || pod.DeletionTimestamp != nil {
			d.mu.Lock()
			delete(d.imports, pod.UID)
			d.mu.Unlock()
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.imports[pod.UID]; known || d.closed {
		return
	}
	d.imports[pod.UID] = ""
	d.watches.Go(func() { d.askImport(identityOf(pod), pod.UID) })
}

// askImport asks the launcher of a Pod until it has imported its image, or has ended.
func (d *Driver) askImport(id backend.Identity, uid types.UID) {
	d.repeat(importInterval, func() bool {
		if pod, err := readPod(d.running, d.cache, id); err == nil && (pod == nil || pod.UID != uid || !imports(pod)) {
			d.mu.Lock()
			delete(d.imports, uid)
			d.mu.Unlock()
			return false
		}
		progress, err := d.askOnce(id, uid, launcher.ProgressPath, d.imports)
		return err != nil || progress != ""
	})
}

// askOnce asks the launcher of a Pod, and notifies the controller of an answer that is not the one before. answers are those of all Pods, by
// their UIDs: it has the Pod until nobody wants its answer any more.
func (d *Driver) askOnce(id backend.Identity, uid types.UID, path string, answers map[types.UID]string) (string, error) {
	answer, err := d.hear(d.running, id, path)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	before, isWanted := answers[uid]
	if isWanted {
		answers[uid] = answer
	}
	d.mu.Unlock()
	if isWanted && answer != before {
		d.notifyChange(id)
	}
	return answer, nil
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

// addProgress adds the progress of an import to a server.
func (d *Driver) addProgress(server *backend.Server, pod *corev1.Pod) {
	if pod == nil || server.State != backend.StateRunning || server.Task != backend.TaskNone || server.Agent != backend.AgentWaiting {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if progress := d.imports[pod.UID]; progress != "" {
		server.Progress = progress
	}
}
