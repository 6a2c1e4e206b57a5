package hosted

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/testing/etcdfile"
)

// addSnapshot adds a snapshot of the cluster with a UID.
func (f *fixture) addSnapshot(uid, of types.UID, content []byte) {
	f.Helper()
	f.addSnapshotWith(uid, `{"cluster":"demo","clusterUID":"`+string(of)+`","version":"v1.36.3"}`, content)
}

// addSnapshotWith adds a snapshot with a record.
func (f *fixture) addSnapshotWith(uid types.UID, record string, content []byte) {
	f.Helper()
	err := f.engine.opts.Snapshots.AddSnapshot(uid, []byte(record), func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
}

// A restore that cannot be done changes nothing, and says why.
func TestRestoreIsRefused(t *testing.T) {
	f := newFixture(t)
	before := f.apply()
	good := etcdfile.New(t, "key")
	f.addSnapshot("other", "other", good)
	f.addSnapshot("damaged", f.request.UID, good[1:])
	for uid, problem := range map[types.UID]string{"missing": "no files", "other": "of another Cluster", "damaged": "cut off"} {
		f.request.Restore = &cluster.Restore{Token: string(uid), Name: "before", UID: uid}
		after := f.apply()
		op := f.observe().Operation
		if op == nil || op.State != v1alpha1.OperationFailed || op.Restore != string(uid) || !errors.Is(op.Err, cluster.ErrSnapshot) || !strings.Contains(op.Description, problem) {
			t.Errorf("%s: the operation is %+v", uid, op)
		}
		if after.deployment.ResourceVersion != before.deployment.ResourceVersion || after.secret.ResourceVersion != before.secret.ResourceVersion {
			t.Errorf("%s: it has changed the cluster", uid)
		}
	}
	f.request.Restore = nil
	if op := f.observe().Operation; op != nil && op.State == v1alpha1.OperationFailed {
		t.Errorf("without a restore, the operation is %+v", op)
	}
}

// A new cluster of spec.from gets the objects of the snapshot before its first API server starts, and keeps its networks of Services.
func TestFork(t *testing.T) {
	f := newFixture(t)
	f.request.Spec.From = &v1alpha1.ClusterSource{Snapshot: "before"}
	good := etcdfile.New(t, "key")
	f.addSnapshot("damaged", "other", good[1:])
	for problem, source := range map[string]cluster.SnapshotRef{
		"not there": {Err: fmt.Errorf("%w: not there", cluster.ErrSnapshot)}, "no files": {UID: "missing"}, "cut off": {UID: "damaged"},
	} {
		f.request.Snapshot = source
		if err := f.engine.Apply(t.Context(), f.request); !errors.Is(err, cluster.ErrSnapshot) || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
	if seen := f.observe(); seen.Exists {
		t.Errorf("without its snapshot it is observed as %+v", seen)
	}
	f.addSnapshotWith("before", `{"cluster":"demo","clusterUID":"other","version":"v1.36.3","services":"10.7.0.0/16,fd00::/108"}`, good)
	f.request.Snapshot = cluster.SnapshotRef{UID: "before"}
	pending := f.apply()
	f.request.Snapshot = cluster.SnapshotRef{Err: cluster.ErrSnapshot} // it is not needed any more
	if seen := f.observe(); *pending.deployment.Spec.Replicas != 0 || seen.Applied || seen.Restored != "" || seen.Operation.State != v1alpha1.OperationProcessing {
		t.Errorf("it is observed as %+v", seen)
	}
	last, err := pending.restored()
	if err != nil || !last.Foreign {
		t.Fatal(last, err)
	}
	last.Done = true // as load does
	if err := f.engine.record(t.Context(), placeOf(f.request), last); err != nil {
		t.Fatal(err)
	}
	done := f.apply()
	if seen := f.observe(); *done.deployment.Spec.Replicas != 3 || !seen.Attended || seen.Restored != "" {
		t.Errorf("afterwards it is observed as %+v", seen)
	}
	if command := done.deployment.Spec.Template.Spec.InitContainers[0].Command; !slices.Contains(command, "--service-cluster-ip-range=10.7.0.0/16,fd00::/108") {
		t.Errorf("the API server is %q", command)
	}
	block, _ := pem.Decode(done.secret.Data["apiserver.crt"])
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err := errors.Join(err, certificate.VerifyHostname("10.7.0.1")); err != nil {
		t.Error(err)
	}
}

// From its record on, no API server runs until the objects are replaced, also after its request is gone.
func TestRestoreIsDoneOnce(t *testing.T) {
	f := newFixture(t)
	f.apply()
	f.addSnapshot("before", f.request.UID, etcdfile.New(t, "key"))
	f.request.Restore = &cluster.Restore{Token: "first", Name: "before", UID: "before"}
	var pending found
	for range 2 {
		engine, err := New(f.engine.opts) // the next manager continues
		if err != nil {
			t.Fatal(err)
		}
		f.engine = engine
		pending = f.apply()
		if replicas := *pending.deployment.Spec.Replicas; replicas != 0 {
			t.Errorf("%d API servers run during a restore", replicas)
		}
		if seen := f.observe(); seen.Restored != "" || seen.Attended || seen.Applied || seen.Poll == 0 || seen.Operation.Restore != "first" || seen.Operation.State != v1alpha1.OperationProcessing {
			t.Errorf("it is observed as %+v", seen)
		}
		f.request.Restore = nil
	}
	f.addSnapshot("another", f.request.UID, etcdfile.New(t, "key"))
	f.request.Restore = &cluster.Restore{Token: "second", Name: "another", UID: "another"}
	pending = f.apply()
	if seen := f.observe(); seen.Operation.Restore != "second" || *pending.deployment.Spec.Replicas != 0 {
		t.Errorf("a restore from another snapshot is observed as %+v", seen)
	}
	last, err := pending.restored()
	if err != nil {
		t.Fatal(err)
	}
	last.Done = true // as load does
	if err := f.engine.record(t.Context(), placeOf(f.request), last); err != nil {
		t.Fatal(err)
	}
	if replicas := *f.apply().deployment.Spec.Replicas; replicas != 3 {
		t.Errorf("%d API servers run after the restore", replicas)
	}
	if seen := f.observe(); seen.Restored != "second" || !seen.Attended || seen.Poll != poll { // its Pods are awaited
		t.Errorf("after the restore it is observed as %+v", seen)
	}
}
