package hosted

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

var images = map[string]string{"v1.36.3": "keelson-kube:v1.36.3", "v1.35.9": "keelson-kube:v1.35.9"}

// fixture is an engine for clusters in a namespace that enforces Pod Security.
type fixture struct {
	*testing.T
	engine  *Engine
	clock   *clocktesting.FakePassiveClock
	request cluster.Request
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: clocktesting.NewFakePassiveClock(noon)}
	config := env.Config(t)
	engine, err := New(Options{Config: config, Images: images, Snapshots: etcdsnapshot.Dir(t.TempDir()), Clock: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	f.engine = engine
	namespace := env.Namespace(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := engine.client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch); err != nil {
		t.Fatal(err)
	}
	f.request = cluster.Request{Name: "demo.example", UID: "0c8f1f0e-6f1c-4b5c-9d0e-000000000001", Spec: v1alpha1.ClusterSpec{
		Engine: v1alpha1.EngineHosted, Hosted: &v1alpha1.HostedControlPlane{Namespace: namespace, Replicas: ptr.To[int32](3)},
	}}
	t.Cleanup(f.deleteAll)
	return f
}

// deleteAll deletes the cluster: there is no controller that would end its Pods.
func (f *fixture) deleteAll() {
	for range 3 {
		_ = f.engine.Delete(f.Context(), f.request) // the context has ended if the test is over
	}
}

func (f *fixture) apply() found {
	f.Helper()
	if err := f.engine.Apply(f.Context(), f.request); err != nil {
		f.Fatal(err)
	}
	return f.found()
}

func (f *fixture) found() found {
	f.Helper()
	seen, err := f.engine.find(f.Context(), placeOf(f.request))
	if err != nil {
		f.Fatal(err)
	}
	return seen
}

func (f *fixture) observe() cluster.Observation {
	f.Helper()
	seen, err := f.engine.Observe(f.Context(), f.request)
	if err != nil {
		f.Fatal(err)
	}
	return seen
}

func TestPodsAreRestricted(t *testing.T) {
	f := newFixture(t)
	seen := f.apply()
	namespace := f.request.Spec.Hosted.Namespace
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := f.engine.client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	for _, template := range []corev1.PodTemplateSpec{seen.etcd.Spec.Template, seen.deployment.Spec.Template} {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.GenerateName = namespace, "pod-"
		if len(seen.etcd.Spec.VolumeClaimTemplates) > 0 {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data"})
		}
		if err := f.engine.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Error(err)
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Secret == nil {
				continue
			}
			for _, item := range volume.Secret.Items {
				if _, found := seen.secret.Data[item.Key]; !found {
					t.Errorf("the Secret has no %s", item.Key)
				}
			}
		}
	}
}

func TestRepeatedApplyChangesNothing(t *testing.T) {
	f := newFixture(t)
	versions := func(seen found) map[string]string {
		return map[string]string{
			"Secret": seen.secret.ResourceVersion, "Service": seen.service.ResourceVersion, "StatefulSet": seen.etcd.ResourceVersion, "Deployment": seen.deployment.ResourceVersion,
		}
	}
	before := f.apply()
	if diff := cmp.Diff(versions(before), versions(f.apply())); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
	if seen := f.observe(); !seen.Exists || seen.Applied || !seen.Attended || seen.Endpoint != "https://"+before.service.Spec.ClusterIP {
		t.Errorf("Observe returns %+v", seen)
	}
	f.clock.SetTime(noon.Add(pki.LeafLifetime/2 + time.Hour))
	if f.observe().Attended {
		t.Error("certificates are due, and nobody is asked to renew them")
	}
	renewed := f.apply()
	changed := []string{}
	for file, content := range renewed.secret.Data {
		if string(content) != string(before.secret.Data[file]) {
			changed = append(changed, file)
		}
	}
	slices.Sort(changed)
	own := administrator("").Certificate() + ".crt"
	want := []string{"apiserver.crt", "etcd-client.crt", "etcd.crt", "front-proxy-client.crt", "kube-controller-manager.crt", "kube-scheduler.crt", own}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("renewed (-want +got):\n%s", diff)
	}
	if renewed.deployment.ResourceVersion != before.deployment.ResourceVersion {
		t.Error("a renewal restarts the API")
	}
}

func TestStop(t *testing.T) {
	f := newFixture(t)
	f.apply()
	f.request.Stop = true
	if seen := f.apply(); *seen.deployment.Spec.Replicas != 0 || *seen.etcd.Spec.Replicas != 0 {
		t.Errorf("%d API servers and %d members of etcd are left", *seen.deployment.Spec.Replicas, *seen.etcd.Spec.Replicas)
	}
	if seen := f.observe(); !seen.Stopped || seen.Running || !seen.Attended || seen.Operation != nil && seen.Operation.State != v1alpha1.OperationSucceeded {
		t.Errorf("Observe returns %+v", seen)
	}
	f.request.Stop = false
	if f.observe().Attended {
		t.Error("nobody is asked to start it")
	}
	if seen := f.apply(); *seen.deployment.Spec.Replicas != 3 || *seen.etcd.Spec.Replicas != 3 {
		t.Errorf("%d API servers and %d members of etcd were started", *seen.deployment.Spec.Replicas, *seen.etcd.Spec.Replicas)
	}
}

func TestDelete(t *testing.T) {
	f := newFixture(t)
	f.apply()
	f.request.Deleting = true
	if seen := f.observe(); !seen.Exists || !strings.Contains(seen.Waiting, "StatefulSet demo-example-0c8f1f0e-6f1c-etcd") {
		t.Errorf("Observe returns %+v", seen)
	}
	f.deleteAll()
	if seen := f.observe(); seen.Exists {
		t.Errorf("after Delete: %s", seen.Waiting)
	}
}

func TestObjectsOfOthersStay(t *testing.T) {
	f := newFixture(t)
	here := placeOf(f.request)
	theirs := here.service()
	theirs.Labels = nil
	if err := f.engine.client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := f.engine.Apply(t.Context(), f.request); !errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), "does not belong to the cluster") {
		t.Errorf("Apply returns %v", err)
	}
}

func TestMissing(t *testing.T) {
	f := newFixture(t)
	f.request.Applied = "before"
	if _, err := f.engine.Observe(t.Context(), f.request); !errors.Is(err, cluster.ErrStateMissing) {
		t.Errorf("Observe without the Secret: %v", err)
	}
	if err := f.engine.Apply(t.Context(), f.request); !errors.Is(err, cluster.ErrStateMissing) {
		t.Errorf("Apply without the Secret: %v", err)
	}
	f.request.Applied, f.request.Spec.Hosted.Namespace = "", "nowhere"
	if err := f.engine.Apply(t.Context(), f.request); !errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), "the namespace nowhere of spec.hosted.namespace does not exist") {
		t.Errorf("Apply without the namespace: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		images        map[string]string
		want          string
		err           error
	}{
		{name: "the newest by default", images: images, want: "keelson-kube:v1.36.3"},
		{name: "another one", version: "v1.35.9", images: images, want: "keelson-kube:v1.35.9"},
		{name: "an unknown one", version: "v1.34.0", images: images, err: cluster.ErrVersion},
		{name: "without images", err: cluster.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, image, err := (&Engine{opts: Options{Images: tt.images}}).imageOf(tt.version)
			if image != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v", image, err)
			}
		})
	}
}

func TestUpgrade(t *testing.T) {
	f := newFixture(t)
	f.request.Spec.Version = "v1.35.9"
	f.apply()
	f.request.Spec.Version = "v1.36.3"
	seen := f.apply()
	for _, template := range []corev1.PodTemplateSpec{seen.etcd.Spec.Template, seen.deployment.Spec.Template} {
		for _, c := range template.Spec.Containers {
			if c.Image != images["v1.36.3"] {
				t.Errorf("after the upgrade %s has the image %s", c.Name, c.Image)
			}
		}
	}
	f.request.Spec.Version = "v1.35.9"
	if err := f.engine.Apply(t.Context(), f.request); !errors.Is(err, cluster.ErrVersion) {
		t.Errorf("a downgrade returns %v", err)
	}
	if after := f.found(); after.etcd.ResourceVersion != seen.etcd.ResourceVersion {
		t.Error("a refused downgrade has changed etcd")
	}
}

func TestSnapshotOfAClusterThatDoesNotRun(t *testing.T) {
	f := newFixture(t)
	of, file := snapshot.Source{Name: f.request.Name, UID: f.request.UID, Spec: f.request.Spec}, filepath.Join(t.TempDir(), "etcd.db")
	for range 2 { // without objects, and without Pods
		if _, err := f.engine.SaveSnapshot(t.Context(), of, file); !errors.Is(err, snapshot.ErrNotRunning) {
			t.Error(err)
		}
		f.apply()
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"demo": "demo-uid-1", "a.b": "a-b-uid-1", "1st": "c-1st-uid-1", strings.Repeat("long", 60): "longlonglonglonglonglong-uid-1",
	} {
		if got := placeOf(cluster.Request{Name: name, UID: "uid-1"}).name; got != want {
			t.Errorf("the objects of %s are named %s, want %s", name, got, want)
		}
	}
}

func TestRollout(t *testing.T) {
	const hash = "hash"
	newFound := func(change func(*found)) found {
		f := found{
			etcd: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationHash: hash}}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1)}},
			deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationHash: hash}}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)},
				Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastTransitionTime: metav1.NewTime(noon), LastUpdateTime: metav1.NewTime(noon),
				}}}},
		}
		change(&f)
		return f
	}
	waiting := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "demo-0"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "etcd", Image: "keelson-kube", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
	}}}}
	progressing := func(reason string, status corev1.ConditionStatus) func(*found) {
		return func(f *found) {
			c := &f.deployment.Status.Conditions[0]
			c.Reason, c.Status = reason, status
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*found)
		state  v1alpha1.OperationState
		stale  bool
		text   string
	}{
		{name: "complete", change: func(*found) {}, state: v1alpha1.OperationSucceeded, text: "rolled out"},
		{name: "still complete when a Pod fails", change: func(f *found) { f.pods = []corev1.Pod{waiting} }, state: v1alpha1.OperationSucceeded, text: "rolled out"},
		{name: "made from another spec", change: func(f *found) { f.etcd.Annotations = nil }, state: v1alpha1.OperationProcessing, stale: true, text: "Waiting for etcd"},
		{name: "etcd is not seen yet", change: func(f *found) { f.etcd.Generation = 2 }, state: v1alpha1.OperationProcessing, text: "Waiting for etcd"},
		{name: "etcd is being updated", change: func(f *found) { f.etcd.Status.UpdateRevision, f.etcd.Status.ReadyReplicas = "new", 1 }, state: v1alpha1.OperationProcessing, text: "Waiting for kube-apiserver"},
		{name: "the API is being updated", change: progressing("ReplicaSetUpdated", corev1.ConditionTrue), state: v1alpha1.OperationProcessing, text: "Waiting for etcd"},
		{name: "with a problem", change: func(f *found) {
			progressing("ReplicaSetUpdated", corev1.ConditionTrue)(f)
			f.pods = []corev1.Pod{waiting}
		}, state: v1alpha1.OperationProcessing, text: "ImagePullBackOff"},
		{name: "past its deadline", change: progressing("ProgressDeadlineExceeded", corev1.ConditionFalse), state: v1alpha1.OperationFailed, text: "did not become ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFound(tt.change)
			op := f.operation(f.rollout(hash), false)
			if op.State != tt.state || op.Stale != tt.stale || !strings.Contains(op.Description, tt.text) {
				t.Errorf("the operation is %+v", op)
			}
			if ended := !op.Ended.IsZero(); ended != (tt.state != v1alpha1.OperationProcessing) {
				t.Errorf("it ended at %s", op.Ended)
			}
		})
	}
}

// A stop waits for the sidecar of a Pod whose other containers have ended.
func TestIsOver(t *testing.T) {
	for _, tt := range []struct {
		phase   corev1.PodPhase
		deleted *metav1.Time
		want    bool
	}{
		{phase: corev1.PodRunning}, {phase: corev1.PodFailed, want: true}, {phase: corev1.PodSucceeded, want: true},
		{phase: corev1.PodFailed, deleted: &metav1.Time{Time: noon}}, {phase: corev1.PodSucceeded, deleted: &metav1.Time{Time: noon}},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tt.deleted}, Status: corev1.PodStatus{Phase: tt.phase}}
		if got := isOver(pod); got != tt.want {
			t.Errorf("%s, deleted at %s: got %t", tt.phase, tt.deleted, got)
		}
	}
}

func TestRule(t *testing.T) {
	base := v1alpha1.ClusterSpec{Engine: v1alpha1.EngineHosted, Hosted: &v1alpha1.HostedControlPlane{Namespace: "a"}}
	for field, change := range map[string]func(*v1alpha1.ClusterSpec){
		"":                       func(*v1alpha1.ClusterSpec) {},
		"spec.nodes":             func(s *v1alpha1.ClusterSpec) { s.Nodes = &v1alpha1.ClusterNodes{} },
		"spec.idle":              func(s *v1alpha1.ClusterSpec) { s.Idle = &v1alpha1.ClusterIdle{} },
		"spec.apiServer.address": func(s *v1alpha1.ClusterSpec) { s.APIServer = &v1alpha1.APIServer{Address: "10.0.0.1"} },
		"spec.apiServer.port":    func(s *v1alpha1.ClusterSpec) { s.APIServer = &v1alpha1.APIServer{Port: 6443} },
		"spec.apiServer.extraArgs": func(s *v1alpha1.ClusterSpec) {
			s.APIServer = &v1alpha1.APIServer{ExtraArgs: map[string]string{"etcd-servers": "a"}}
		},
	} {
		spec := base.DeepCopy()
		change(spec)
		var wrong *cluster.FieldError
		got := ""
		if err := NewRule()(*spec); errors.As(err, &wrong) {
			got = wrong.Field
		} else if err != nil {
			t.Error(err)
		}
		if got != field {
			t.Errorf("the field %q is refused, want %q", got, field)
		}
	}
}
