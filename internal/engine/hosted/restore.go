package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/snapshotfile"
)

// A restore replaces the objects in the running etcd, while there is no API server. It is recorded in the Secret before anything changes, and
// as done afterwards. In between nothing ends it but a restore from another snapshot: some objects may be missing. A cluster of spec.from is
// restored from the snapshot of another one before its first API server starts.

// restoreKey is the key of the Secret with the last restore.
const restoreKey = "restore.json"

// restore is the last restore of a cluster; the zero value if there was none.
type restore struct {
	// Token, Name and UID are those of the cluster.Restore. With spec.from there is no token.
	Token string    `json:"token,omitempty"`
	Name  string    `json:"name,omitempty"`
	UID   types.UID `json:"uid,omitempty"`
	// Foreign is true if the snapshot is of another cluster.
	Foreign bool `json:"foreign,omitempty"`
	// Services are the networks of Services, in which the objects have addresses, separated by a comma; empty for serviceNetwork.
	Services string `json:"services,omitempty"`
	// Began is when it was recorded.
	Began time.Time `json:"began,omitzero"`
	// Done is true when all objects are replaced.
	Done bool `json:"done,omitempty"`
}

// services are the networks of Services.
func (r restore) services() string { return cmp.Or(r.Services, serviceNetwork) }

// isPending reports whether the objects are to be replaced.
func (r restore) isPending() bool { return r.UID != "" && !r.Done }

// restore returns the last restore.
func (d data) restore() (restore, error) { return decode[restore](d, restoreKey) }

// setRestore sets the last restore.
func (d data) setRestore(last restore) (err error) {
	if last.UID != "" {
		d[restoreKey], err = json.Marshal(last)
	}
	return err
}

// restored returns the last restore in a Secret; the zero value if there is no Secret.
func (f found) restored() (restore, error) {
	if f.secret == nil {
		return restore{}, nil
	}
	return data(f.secret.Data).restore()
}

// fork returns the restore of a new cluster of spec.from.
func (e *Engine) fork(ctx context.Context, r cluster.Request, wanted desire) (restore, error) {
	of, err := e.opts.Snapshots.ForNew(r, wanted.spec.Version)
	if err != nil {
		return restore{}, err
	}
	next := restore{Name: r.Spec.From.Snapshot, UID: r.Snapshot.UID, Foreign: true, Services: of.Services, Began: e.opts.Clock.Now().UTC()}
	return next, e.inspect(ctx, next.Name, next.UID)
}

// inspect returns an error if the snapshot is damaged.
func (e *Engine) inspect(ctx context.Context, name string, uid types.UID) error {
	if _, err := snapshotfile.Inspect(ctx, e.opts.Snapshots.File(uid)); err != nil {
		return fmt.Errorf("%w: the ClusterSnapshot %s: %w", cluster.ErrSnapshot, name, err)
	}
	return nil
}

// nextRestore returns the last restore, or a new one if the request has one. It checks the snapshot before anything is changed.
func (e *Engine) nextRestore(ctx context.Context, last restore, r cluster.Request, wanted desire) (restore, error) {
	if r.Restore == nil || r.Restore.Token == last.Token {
		return last, nil
	}
	if _, err := e.opts.Snapshots.ForRestore(r.Restore, r.UID, wanted.spec.Version); err != nil {
		return last, err
	}
	if err := e.inspect(ctx, r.Restore.Name, r.Restore.UID); err != nil {
		return last, err
	}
	return restore{Token: r.Restore.Token, Name: r.Restore.Name, UID: r.Restore.UID, Services: last.Services, Began: e.opts.Clock.Now().UTC()}, nil
}

// attempt is the last attempt of this manager to begin a restore, or to replace the objects.
type attempt struct {
	// token is that of the restore.
	token string
	// runs is true while objects are replaced.
	runs bool
	// err is why it failed, and at when. A restore that has begun is attempted again after retryPause.
	err error
	at  time.Time
}

// retryPause is the pause before objects are replaced again.
const retryPause = 10 * time.Second

// refuse notes that a restore was not begun. The cluster has not changed.
func (e *Engine) refuse(r cluster.Request, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attempts[r.UID] = attempt{token: r.Restore.Token, err: err, at: e.opts.Clock.Now()}
}

func (e *Engine) attempt(uid types.UID) attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attempts[uid]
}

// continueRestore replaces the objects of a cluster in the background, as soon as etcd runs and no API server does. Until then, Apply is
// repeated.
func (e *Engine) continueRestore(here place, now found, of restore) {
	member := now.readyMember()
	if member == nil || now.deployment == nil || *now.deployment.Spec.Replicas > 0 || now.hasPod(componentAPI) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.attempts[here.uid]
	if e.closed || was.runs || was.err != nil && was.token == of.Token && e.opts.Clock.Since(was.at) < retryPause {
		return
	}
	e.attempts[here.uid] = attempt{token: of.Token, runs: true}
	e.calls.Go(func() {
		err := e.load(e.ctx, here, member, of)
		e.mu.Lock()
		if _, known := e.attempts[here.uid]; known { // else the cluster is being deleted
			e.attempts[here.uid] = attempt{token: of.Token, err: err, at: e.opts.Clock.Now()}
			e.applied[here.uid] = "" // the API servers are next
		}
		e.mu.Unlock()
		if err != nil {
			e.opts.Log.Error(err, "Failed to replace the objects of a cluster; it is tried again", "Cluster", here.cluster, "ClusterSnapshot", of.Name)
		}
		e.changed(here.cluster)
	})
}

// load replaces the objects of a cluster, and records that.
func (e *Engine) load(ctx context.Context, here place, member *corev1.Pod, of restore) error {
	if _, err := e.opts.Snapshots.Require(of.UID, of.Name); err != nil {
		instead := "request a restore from another ClusterSnapshot with keepCurrent: false"
		if of.Foreign {
			instead = "delete this Cluster and create it again"
		}
		return fmt.Errorf("%w. Restore the state directory of the manager, or %s", err, instead)
	}
	command := append([]string{"/keelson-kube", "etcd-load"}, etcdFlags()...)
	if of.Foreign {
		command = append(command, "--foreign")
	}
	err := snapshotfile.ReadObjects(ctx, e.opts.Snapshots.File(of.UID), func(objects io.Reader) error {
		return e.exec(ctx, member, objects, io.Discard, command...)
	})
	if err != nil {
		return err
	}
	of.Done = true
	return e.record(ctx, here, of)
}

// record writes a restore to the Secret.
func (e *Engine) record(ctx context.Context, here place, of restore) error {
	changed := data{}
	if err := changed.setRestore(of); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": changed})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: here.meta(here.name, "")}
	return explain(e.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch), fieldOwner), "patch", "Secret", secret)
}

// etcdFlags are the flags of clients of etcd in its Pod.
func etcdFlags() []string {
	return []string{"--endpoint=https://127.0.0.1:" + strconv.Itoa(clientPort), "--cacert=" + inPod("etcd-ca.crt"), "--cert=" + inPod("etcd.crt"), "--key=" + inPod("etcd.key")}
}

// observeRestore adds a restore that has not ended, or was refused.
func (e *Engine) observeRestore(r cluster.Request, last restore, seen *cluster.Observation) {
	if last.Done {
		seen.Restored = last.Token
	}
	was := e.attempt(r.UID)
	switch {
	case r.Stop:
	case r.Restore != nil && r.Restore.Token != last.Token && r.Restore.Token == was.token && was.err != nil: // it was refused
		seen.Operation = &cluster.Operation{Restore: was.token, State: v1alpha1.OperationFailed, Description: was.err.Error(), Err: was.err, Began: was.at, Ended: was.at}
	case last.isPending():
		op := &cluster.Operation{Restore: last.Token, State: v1alpha1.OperationProcessing, Description: "Restoring the snapshot", Began: last.Began}
		if was.err != nil && was.token == last.Token {
			op.Description = fmt.Sprintf("The snapshot cannot be restored, and Keelson retries: %v", was.err)
		}
		seen.Operation, seen.Applied, seen.Attended, seen.Poll = op, false, seen.Attended && was.runs, poll
	}
}
