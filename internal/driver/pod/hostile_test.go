package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// forge creates, in the namespace of a tenant, everything that could be taken for an object of another tenant's machine or snapshot, or for
// their records.
func (c *cluster) forge(in string, victim *backend.Machine, snapshot backend.SnapshotIdentity) {
	c.Helper()
	create := func(object client.Object) {
		c.Helper()
		if err := c.driver.client.Create(c.Context(), object); err != nil {
			c.Fatal(err)
		}
	}
	inKubeSystem := *victim
	inKubeSystem.Namespace = metav1.NamespaceSystem
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "forged"}}
	for i, machine := range []*backend.Machine{victim, &inKubeSystem} {
		rec := &record{
			Machine: *machine, Started: machine, Run: "forged", Asleep: &asleep{SavedBytes: 1}, Restored: "forged",
			Fill: &fill{Snapshot: snapshot, Disks: []string{rootDisk}, Token: "forged"},
		}
		secret := newSecret(in, rec, &backend.Seed{UserData: "forged"})
		ofSnapshot := newSnapshotSecret(in, snapshot, &snapshotRecord{Claim: claim.UID, Machine: machine.Identity, Memory: &snapshotMemory{Started: *machine}})
		for j, name := range []string{secret.Name, objectName(victim.UID), "any"} {
			copied := secret.DeepCopy()
			copied.Name = fmt.Sprintf("%s%s", name, strings.Repeat("-again", i))
			copied.Annotations[annotationNamespace] = []string{in, machine.Namespace, victim.Namespace}[j]
			create(copied)
		}
		ofSnapshot.Name += strings.Repeat("-again", i)
		create(ofSnapshot)
	}
	own := *victim
	own.Namespace, own.Name = in, "nope"
	forgedRun := &record{Machine: own, Started: &own, Run: "forged"}
	pod := newPod(forgedRun, c.driver.images, emulated, false)
	create(pod)
	another := pod.DeepCopy()
	another.ResourceVersion, another.Name = "", "any"
	create(another)
	forgedRun.Fill = &fill{Snapshot: snapshot, Disks: []string{rootDisk}, Token: "forged"}
	filling := newFillPod(forgedRun, c.driver.images, emulated)
	create(filling)
	create(newClaim(&own, backend.Disk{Name: rootDisk, SizeBytes: own.DiskBytes}))
	create(newSnapshotClaim(snapshot, &own, false))
	misnamed := newClaim(&own, backend.Disk{Name: "data", SizeBytes: own.DiskBytes})
	misnamed.Name = "any"
	create(misnamed)
}

// objects returns the versions of all objects that this driver could change, in namespaces.
func (c *cluster) objects(namespaces ...string) map[string]string {
	c.Helper()
	found := map[string]string{}
	for _, namespace := range namespaces {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := c.driver.client.List(c.Context(), list, client.InNamespace(namespace)); err != nil {
				c.Fatal(err)
			}
			raw, err := json.Marshal(list)
			if err != nil {
				c.Fatal(err)
			}
			var objects metav1.PartialObjectMetadataList
			if err := json.Unmarshal(raw, &objects); err != nil {
				c.Fatal(err)
			}
			for _, object := range objects.Items {
				found[fmt.Sprintf("%T %s/%s", list, namespace, object.Name)] = object.ResourceVersion
			}
		}
	}
	return found
}

// A tenant who may write all objects in a namespace changes nothing elsewhere, whatever the driver is called for: not for what it lists, which
// the manager deletes if it has no VirtualMachine, nor for a machine of the tenant.
func TestWhatATenantForgesConcernsNobodyElse(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	victim := c.running()
	id := c.taken(&victim)
	harness.Eventually(t, "the snapshot has its volume", func() bool {
		claim, _, err := c.driver.seenSnapshot(t.Context(), id)
		return err == nil && claim != nil && claim.Status.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) == 0
	})
	mine, attacker := []string{victim.Namespace, recordNamespace, metav1.NamespaceSystem}, c.namespaces[1]
	before, state := c.objects(mine...), c.until(victim, "it runs", isRunning)
	c.forge(attacker, &victim, id)
	t.Cleanup(func() {
		for _, object := range []client.Object{&corev1.Secret{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
			_ = c.driver.client.DeleteAllOf(context.Background(), object, client.InNamespace(attacker)) // the next test has its own
		}
	})
	forged := victim.Identity
	forged.Namespace, forged.Name = attacker, "nope"
	unharmed := func(after string) {
		t.Helper()
		now, err := c.driver.Observe(t.Context(), victim.Identity)
		if diff := cmp.Diff(state, now); diff != "" || err != nil {
			t.Errorf("after %s, the machine of another tenant differs (%v):\n%s", after, err, diff)
		}
		if diff := cmp.Diff(before, c.objects(mine...)); diff != "" {
			t.Errorf("after %s, objects of another tenant differ:\n%s", after, diff)
		}
	}
	c.until(backend.Machine{Identity: forged}, "the forged Pod runs", func(s backend.Server) bool { return s.State == backend.StateRunning })
	unharmed("all was forged")
	machine := victim
	machine.Identity = forged
	snapshot := id
	snapshot.Namespace = attacker
	calls := []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"Stop", func(ctx context.Context) error { return c.driver.Stop(ctx, forged, 0) }},
		{"Sleep", func(ctx context.Context) error { return c.driver.Sleep(ctx, forged, backend.SleepOptions{}) }},
		{"Pause", func(ctx context.Context) error { return c.driver.Pause(ctx, forged) }},
		{"Start", func(ctx context.Context) error { return c.driver.Start(ctx, machine) }},
		{"TakeSnapshot", func(ctx context.Context) error {
			return c.driver.TakeSnapshot(ctx, snapshot, backend.Source{Server: forged})
		}},
		{"RestoreServer", func(ctx context.Context) error {
			return c.driver.RestoreServer(ctx, forged, backend.Restore{Token: "once", Snapshot: snapshot})
		}},
	}
	for _, test := range calls {
		if err := test.call(t.Context()); err == nil {
			t.Errorf("%s of what was forged did not fail", test.name)
		}
		unharmed(test.name)
	}
	if state, err := c.driver.ObserveSnapshot(t.Context(), snapshot); err != nil || state.Taken {
		t.Errorf("the forged snapshot is %+v, %v", state, err)
	}
	servers, err := c.driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[types.NamespacedName]int{}
	for _, server := range servers {
		found[types.NamespacedName{Namespace: server.Namespace, Name: string(server.UID)}]++
		if server.Namespace == attacker && server.Usage != nil {
			t.Error("the forged machine has usage")
		}
		if server.Identity == victim.Identity {
			continue
		}
		// This is what the manager does with a server without a VirtualMachine.
		c.must("Delete", c.driver.Delete(t.Context(), server.Identity, backend.DeleteOptions{}))
		unharmed("Delete")
	}
	if diff := cmp.Diff(map[types.NamespacedName]int{{Namespace: victim.Namespace, Name: string(victim.UID)}: 1, {Namespace: attacker, Name: string(victim.UID)}: 1}, found); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if err := c.driver.DeleteSnapshot(t.Context(), snapshot); err != nil {
		t.Logf("delete the forged snapshot: %v", err) // its Pods are ending
	}
	unharmed("DeleteSnapshot")
	c.remove(victim)
	c.deletesSnapshot(id)
}

// What a tenant writes into the Secret that the Pod of a machine mounts is gone at the next start, which has the seed of the one before if it
// is given no other. The record is not in that Secret.
func TestTheSeedIsWrittenAgain(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	machine.Seed = &backend.Seed{UserData: "#cloud-config", NetworkData: "version: 2"}
	c.must("Create", c.driver.Create(t.Context(), machine))
	c.start(machine)
	seeds := c.api.CoreV1().Secrets(machine.Namespace)
	seed, err := seeds.Get(t.Context(), objectName(machine.UID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := seed.Data
	if want[recordKey] != nil || len(want[launcher.TokenFile]) == 0 {
		t.Errorf("it has the keys %v", want)
	}
	seed.Data = map[string][]byte{launcher.TokenFile: []byte("forged"), recordKey: []byte("forged")}
	if _, err := seeds.Update(t.Context(), seed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop(machine)
	machine.Seed, machine.KeepsSeed = nil, true
	c.start(machine)
	if seed, err = seeds.Get(t.Context(), objectName(machine.UID), metav1.GetOptions{}); err != nil || cmp.Diff(want, seed.Data) != "" {
		t.Errorf("it differs (%v):\n%s", err, cmp.Diff(want, seed.Data))
	}
	c.remove(machine)
}

// A record that is unreadable, or describes another machine, hides no other machine.
func TestUnreadableRecord(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	good, other, damaged := c.machine(uuid.NewUUID()), c.machine(uuid.NewUUID()), map[types.UID]bool{}
	c.must("Create", c.driver.Create(t.Context(), good))
	for _, data := range []string{"{", fmt.Sprintf(`{"machine":{"uid":%q,"namespace":%q}}`, other.UID, other.Namespace), `{}`} {
		machine := c.machine(uuid.NewUUID())
		damaged[machine.UID] = true
		c.must("Create", c.driver.Create(t.Context(), machine))
		secret, err := c.driver.readSecret(t.Context(), c.driver.client, machine.Identity)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[recordKey] = []byte(data)
		if err := c.driver.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		c.driver.await(t.Context(), func() bool {
			_, err := c.driver.Observe(t.Context(), machine.Identity)
			return err != nil
		})
	}
	servers, err := c.driver.List(t.Context())
	if err != nil || len(servers) != 1+len(damaged) {
		t.Fatalf("there are %d servers, %v", len(servers), err)
	}
	for i := range servers {
		isUnknown := servers[i].State == backend.StateUnknown && strings.Contains(servers[i].Message, recordName(servers[i].Namespace, objectName(servers[i].UID)))
		if isUnknown != damaged[servers[i].UID] {
			t.Errorf("it is %+v", servers[i])
		}
	}
	for i := range servers {
		c.remove(backend.Machine{Identity: servers[i].Identity})
	}
}

// The watches keep nothing that the driver does not read, however much of it a tenant writes.
func TestTheCacheIsBounded(t *testing.T) {
	machine, large := newMachine(), strings.Repeat("x", 1<<20)
	pod := newPod(&record{Machine: machine, Started: &machine, Run: "run"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	pod.Labels["app"], pod.Annotations["note"] = large, large
	env := &pod.Spec.Containers[0].Env
	*env = append([]corev1.EnvVar{{Name: "LARGE", Value: large}, {Name: launcher.Variable, Value: large}}, *env...)
	pod.Spec.Containers = append([]corev1.Container{{Name: large}}, pod.Spec.Containers...)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": large}}}
	for _, object := range []client.Object{pod, claim} {
		if _, err := slim(object); err != nil {
			t.Fatal(err)
		}
		if raw, err := json.Marshal(object); err != nil || len(raw) > maxDefinition {
			t.Errorf("the %T has %d bytes, %v", object, len(raw), err)
		}
	}
	if definition, readable := definitionOf(pod); !readable || definition.UID != string(machine.UID) {
		t.Errorf("it runs %+v", definition)
	}
}
