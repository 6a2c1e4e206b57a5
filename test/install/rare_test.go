package install

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// rarely creates situations in a namespace that no transcript covers, and waits until the manager
// has used the permissions for them.
func (w *world) rarely(t *testing.T, g *gate, user, namespace string) {
	t.Helper()
	in := func(manifest string) {
		t.Helper()
		s := w.Shell
		s.Stdin = manifest
		s.OK(t, "kubectl", "create", "--namespace", namespace, "-f", "-")
	}
	w.kubectl(t, "wait", "--for=create", "serviceaccount/default", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())

	// The name of a child is taken, and the cache is outdated.
	open := g.hold("deployments", "pods")
	t.Cleanup(open)
	const taken = "{metadata: {name: taken}, "
	w.kubectl(t, "create", "deployment", "taken", "--image", "busybox", "--replicas", "0", "--namespace", namespace)
	w.kubectl(t, "run", "taken", "--image", "busybox", "--namespace", namespace)
	in(taken + "apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, spec: {deploymentName: taken}}")
	in(taken + "apiVersion: example.com/v1, kind: SampleResource, spec: {podImage: nginx}}")
	w.untilUsed(t, user, use{"get", "apps", "deployments", namespace, "taken"}, use{"get", "", "pods", namespace, "taken"})
	open()

	// The same event again is counted in the first one. The cache is not outdated any more, so the event before has another note.
	for range 2 {
		for _, to := range []struct{ name, ready string }{{"free", "True"}, {"taken", "False"}} {
			w.kubectl(t, "patch", "foo/taken", "--namespace", namespace, "--type", "merge", "-p", `{"spec":{"deploymentName":"`+to.name+`"}}`)
			w.kubectl(t, "wait", "--for=condition=Ready="+to.ready, "foo/taken", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
		}
	}
	w.untilAny(t, user, "events", namespace, "patch")

	// A new CronTab has a run immediately, and the name of its Job is taken.
	asked := time.Now().UTC().Truncate(time.Second)
	name := fmt.Sprintf("taken-%d", asked.Unix())
	w.kubectl(t, "create", "job", name, "--image", "busybox", "--namespace", namespace)
	in(fmt.Sprintf(`{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: taken},
		spec: {runRequestedAt: "%s", schedule: "@daily", jobTemplate: {restartPolicy: Never, containers: [{name: a, image: busybox}]}}}`, asked.Format(time.RFC3339)))
	w.untilUsed(t, user, use{"get", "stable.example.com", "crontabs", namespace, "taken"}, use{"get", "batch", "jobs", namespace, name})

	// No Job is kept.
	w.apply(t, fmt.Sprintf(`{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: forgets, namespace: %s}, spec: {schedule: "@every 1s", successfulJobsHistoryLimit: 0,
		jobTemplate: {restartPolicy: Never, containers: [{name: a, image: busybox}]}}}`, namespace))
	// A Job with a TTL, which begins when its run is recorded.
	w.apply(t, fmt.Sprintf(`{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: lives, namespace: %s}, spec: {schedule: "@every 1s",
		jobTemplate: {spec: {ttlSecondsAfterFinished: 600, template: {spec: {restartPolicy: Never, containers: [{name: a, image: busybox}]}}}}}}`, namespace))
	w.untilAny(t, user, "jobs", namespace, "delete", "patch")

	// The schedule of a machine makes snapshots, and deletes those that it does not keep.
	in(`{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: scheduled},
		spec: {action: stopped, resource: {memory: 128Mi, rootDisk: 16Mi}, snapshots: {schedule: "@every 2s", keep: 1}}}`)
	w.untilAny(t, user, "virtualmachinesnapshots", namespace, "create", "delete")
	w.kubectl(t, "delete", "virtualmachine", "scheduled", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "delete", "virtualmachinesnapshots", "--all", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())

	// A set creates machines and a disk, and deletes one machine.
	in(`{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachineSet, metadata: {name: own}, spec: {replicas: 2, template: {spec: {driver: fake}},
		virtualDiskTemplates: [{name: data, spec: {size: 8Mi}}]}}`)
	w.untilAny(t, user, "virtualmachines", namespace, "create")
	w.kubectl(t, "wait", "--for=create", "virtualmachine/own-1", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "scale", "virtualmachineset/own", "--replicas", "1", "--namespace", namespace)
	w.untilAny(t, user, "virtualmachines", namespace, "delete")
	w.kubectl(t, "delete", "virtualmachineset", "own", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())

	in(`{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualDisk, metadata: {name: own}, spec: {size: 8Mi}}`)
	w.kubectl(t, "wait", "--for=condition=Ready", "virtualdisk/own", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "delete", "virtualdisk", "own", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
	w.untilAny(t, user, "virtualdisks", namespace, "get", "patch")

	// A VirtualMachine is restored from a backup with its finalizer.
	in(`{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: restored, finalizers: [fake.cloudnative.tw/server]}, spec: {driver: fake}}`)
	w.untilUsed(t, user, use{"get", "cloudnative.tw", "virtualmachines", namespace, "restored"})
	w.kubectl(t, "delete", "foos,sampleresources,crontabs,virtualmachines", "--all", "--namespace", namespace, "--timeout", transcript.WaitTimeout.String())
}

// rarelyWithClusters does the same for cluster-scoped kinds.
func (w *world) rarelyWithClusters(t *testing.T, user string) {
	t.Helper()
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: rare}}")
	w.kubectl(t, "wait", "--for=condition=Ready", "cluster/rare", "--timeout", transcript.WaitTimeout.String())
	// A user changes a field of the controller.
	w.kubectl(t, "patch", "kubeconfig/rare", "--type", "merge", "-p", `{"spec":{"secretRef":{"key":"other"}}}`)
	w.kubectl(t, "patch", "secret/rare-kubeconfig", "--namespace", home, "--type", "merge", "-p", `{"data":{"value":"eA=="}}`)
	w.untilUsed(t, user, use{"update", "clusterprovisioner.rke.io", "kubeconfigs", "", "rare"}, use{"update", "", "secrets", home, "rare-kubeconfig"})
	// Its schedule makes snapshots, and deletes those that it does not keep.
	w.kubectl(t, "patch", "cluster/rare", "--type", "merge", "-p", `{"spec":{"snapshots":{"schedule":"@every 2s","keep":1}}}`)
	w.untilAny(t, user, "clustersnapshots", "", "create", "delete")
	w.kubectl(t, "delete", "cluster", "rare", "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "delete", "clustersnapshots", "--selector", "cluster.x-k8s.io/cluster-name=rare", "--timeout", transcript.WaitTimeout.String())

	// A Cluster expires: that was announced an hour ago.
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: brief}, spec: {expiresAfter: 1s}}")
	w.kubectl(t, "wait", "--for=condition=Expiring", "cluster/brief", "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "patch", "cluster/brief", "--subresource", "status", "--type", "merge", "-p", fmt.Sprintf(`{"status":{"conditions":[{"type":"Expiring",
		"status":"True","reason":"Expiring","message":"","lastTransitionTime":"%s"}]}}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	w.untilUsed(t, user, use{"delete", "clusterprovisioner.rke.io", "clusters", "", "brief"})
	w.kubectl(t, "wait", "--for=delete", "cluster/brief", "--timeout", transcript.WaitTimeout.String())

	// A Kubeconfig as stored by the original controller.
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Kubeconfig, metadata: {name: old}, spec: {ConfigPath: "+filepath.Join(os.TempDir(), "old.yml")+"}}")
	w.untilUsed(t, user, use{"patch", "clusterprovisioner.rke.io", "kubeconfigs", "", "old"})
	w.kubectl(t, "delete", "kubeconfig", "old", "--timeout", transcript.WaitTimeout.String())
}

// untilUsed waits until a user has performed all these operations.
func (w *world) untilUsed(t *testing.T, user string, wanted ...use) {
	t.Helper()
	for _, u := range wanted {
		transcript.Eventually(t, u.String(), func() bool { return w.recordOf(t, user).uses[u] })
	}
}

// untilAny waits until a user has used all these verbs on objects of a resource in a namespace.
func (w *world) untilAny(t *testing.T, user, resource, namespace string, verbs ...string) {
	t.Helper()
	for _, verb := range verbs {
		transcript.Eventually(t, "to "+verb+" "+resource, func() bool {
			for u := range w.recordOf(t, user).uses {
				if u.verb == verb && u.resource == resource && u.namespace == namespace {
					return true
				}
			}
			return false
		})
	}
}
