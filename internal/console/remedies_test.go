package console

import (
	"slices"
	"strings"
	"testing"
)

// What the page says about a reason is what the documentation says, of every kind with a table of reasons.
func TestRemedies(t *testing.T) {
	all, err := readRemedies()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []remedy{
		{Plural: "virtualmachines", Condition: "Ready", Reason: "SecretMissing", Text: "create the Secret or key of `cloudInit`", Page: "docs/virtualmachine-conditions.md#conditions"},
		{Plural: "virtualmachines", Condition: "Ready", Reason: "ImageMissing", Text: "there is no VirtualMachineImage (docs/images.md) or VirtualMachineSnapshot (docs/snapshots.md) with the name in `image`, or the machine is not allowed to use it (docs/snapshots-fork.md#in-another-namespace): create or allow it", Page: "docs/virtualmachine-conditions.md#conditions"},
		{Plural: "virtualmachines", Condition: "DisksReady", Reason: "DiskInUse", Text: "another machine uses the VirtualDisk: remove it from `spec.disks` there, or delete that machine", Page: "docs/disks.md#when-a-change-does-not-complete"},
		{Plural: "clusters", Condition: "Provisioned", Reason: "VersionNotAvailable", Text: "fix the spec according to the message", Page: "docs/cluster.md#conditions"},
		{Plural: "clusters", Condition: "NodesReady", Reason: "NodesNotReady", Text: "the message shows the node and the cause; retried every 10 s", Page: "docs/cluster.md#conditions"},
		{Plural: "clusters", Condition: "EtcdHealthy", Reason: "EtcdAlarm", Text: "etcd rejects writes or has detected corruption; see the remedy (docs/operations.md#when-etcd-is-full)", Page: "docs/cluster.md#conditions"},
		{Plural: "clustersnapshots", Condition: "Ready", Reason: "ClusterMissing", Text: "there is no such Cluster: create it, or delete the ClusterSnapshot", Page: "docs/cluster-snapshots.md#conditions"},
		{Plural: "crontabs", Condition: "LastRunSucceeded", Reason: "NoRunFinished", Text: "no run has finished", Page: "docs/crontab.md#conditions"},
		{Plural: "foos", Condition: "Ready", Reason: "DeploymentWriteFailed", Text: "writing the Deployment failed; retried with backoff", Page: "docs/foo.md#ready"},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("there is no %+v", want)
		}
	}
	for _, r := range all {
		if r.Text == "" || strings.Contains(r.Text, "](") || r.Condition == "" || strings.ContainsAny(r.Condition, "` ") {
			t.Errorf("not read well: %+v", r)
		}
	}
	// This reason is also one of Ready=True.
	if i := slices.IndexFunc(all, func(r remedy) bool { return r.Reason == "NoSchedule" }); i < 0 || !strings.Contains(all[i].Text, "Set both") {
		t.Errorf("the remedy of NoSchedule is %+v", all)
	}
	for _, table := range reasonTables {
		if !slices.ContainsFunc(all, func(r remedy) bool { return r.Plural == table.plural }) {
			t.Errorf("no reason of %s", table.plural)
		}
	}
}
