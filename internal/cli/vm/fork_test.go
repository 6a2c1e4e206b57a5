package vm

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// forking is an API in which web can be forked.
type forking struct {
	// reason is that of the snapshot that the command takes.
	reason string
	// change changes a machine that the command creates.
	change func(*v1alpha1.VirtualMachine)
	others []client.Object
}

// run forks web once, and returns what there is then besides web, and the error.
func (f forking) run(t *testing.T, snapshot string) (left []string, err error) {
	t.Helper()
	web := machineWith(metav1.ConditionTrue, v1alpha1.ReasonGuestReady, nil)
	create := func(ctx context.Context, c client.WithWatch, created client.Object, options ...client.CreateOption) error {
		switch o := created.(type) {
		case *v1alpha1.VirtualMachineSnapshot:
			status := metav1.ConditionFalse
			if f.reason == v1alpha1.ReasonSnapshotTaken {
				status = metav1.ConditionTrue
			}
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: f.reason, Message: "Why"}}
		case *v1alpha1.VirtualMachine:
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionCreated, Status: metav1.ConditionTrue}}
			if f.change != nil {
				f.change(o)
			}
		}
		return c.Create(ctx, created, options...)
	}
	get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, into, options...)
		if into.GetAnnotations()["deleted"] != "" { // the fake client creates nothing that is being deleted
			into.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		}
		return err
	}
	c := clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme)).WithObjects(append(f.others, web)...).
		WithInterceptorFuncs(interceptor.Funcs{Create: create, Get: get}).Build()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	err = newMachines(c, "").fork(cmd, "web", []string{"copy"}, snapshot, true, time.Minute, &object.Output{})
	var vms v1alpha1.VirtualMachineList
	var snapshots v1alpha1.VirtualMachineSnapshotList
	for _, list := range []client.ObjectList{&vms, &snapshots} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range vms.Items {
		if vms.Items[i].Name != "web" {
			left = append(left, "vm/"+vms.Items[i].Name)
		}
	}
	for i := range snapshots.Items {
		name, _, _ := strings.Cut(snapshots.Items[i].Name, "-") // the default name has the time
		left = append(left, "vmsnap/"+name)
	}
	return left, err
}

// A fork that cannot be made fails at once, and leaves nothing behind.
func TestForkThatFails(t *testing.T) {
	deleted := func(o client.Object) { o.SetAnnotations(map[string]string{"deleted": "yes"}) }
	going := &v1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "before"}}
	deleted(going)
	existing := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "copy"}}
	existingGoing := existing.DeepCopy()
	deleted(existingGoing)
	for _, test := range []struct {
		name     string
		api      forking
		snapshot string
		fail     string
		left     []string
	}{
		{"done", forking{reason: v1alpha1.ReasonSnapshotTaken}, "", "", []string{"vm/copy"}},
		{"off, so without memory", forking{reason: v1alpha1.ReasonMachineNotRunning}, "", "VirtualMachine team/web cannot be forked: Why", nil},
		{"deleted meanwhile", forking{reason: v1alpha1.ReasonMachineMissing}, "", "cannot be forked: Why", nil},
		{"the driver has no snapshots", forking{reason: v1alpha1.ReasonInvalidSpec}, "", "cannot be forked: Why", nil},
		{"no such snapshot", forking{}, "nope", `there is no VirtualMachineSnapshot "nope"`, nil},
		{"a snapshot that is being deleted", forking{others: []client.Object{going}}, "before", "VirtualMachineSnapshot team/before is being deleted", []string{"vmsnap/before"}},
		{"the name is taken", forking{reason: v1alpha1.ReasonSnapshotTaken, others: []client.Object{existing}}, "", "VirtualMachine team/copy exists already", []string{"vm/copy"}},
		{"the name is being deleted", forking{reason: v1alpha1.ReasonSnapshotTaken, others: []client.Object{existingGoing}}, "", "VirtualMachine team/copy is being deleted", []string{"vm/copy"}},
		{"the new machine is deleted meanwhile", forking{reason: v1alpha1.ReasonSnapshotTaken, change: func(vm *v1alpha1.VirtualMachine) { deleted(vm) }}, "", "VirtualMachine team/copy is being deleted", []string{"vm/copy", "vmsnap/web"}},
	} {
		left, err := test.api.run(t, test.snapshot)
		if (test.fail == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%s: %v, want %q", test.name, err, test.fail)
		}
		if diff := cmp.Diff(test.left, left); diff != "" {
			t.Errorf("%s: (-want +left)\n%s", test.name, diff)
		}
	}
}

// A dry run prints the new machines and writes nothing.
func TestForkDryRun(t *testing.T) {
	web := machineWith(metav1.ConditionTrue, v1alpha1.ReasonGuestReady, nil)
	for _, mode := range []string{"client", "server"} {
		writes := 0
		c := clientfake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme)).WithObjects(web.DeepCopy()).
			WithInterceptorFuncs(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.CreateOption) error {
				applied := client.CreateOptions{}
				if len(applied.ApplyOptions(options).DryRun) == 0 {
					writes++
				}
				return nil
			}}).Build()
		var out bytes.Buffer
		cmd, output, flags := &cobra.Command{}, &object.Output{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		output.AddFlags(flags)
		if err := flags.Parse([]string{"--dry-run=" + mode, "-o=name"}); err != nil {
			t.Fatal(err)
		}
		if err := newMachines(c, "").fork(cmd, "web", []string{"a", "b"}, "", true, time.Minute, output); err != nil || writes > 0 {
			t.Errorf("%s: error %v, %d writes", mode, err, writes)
		}
		if want := "virtualmachine.cloudnative.tw/a\nvirtualmachine.cloudnative.tw/b\n"; out.String() != want {
			t.Errorf("%s: got %q", mode, out.String())
		}
	}
}

// A fork has the spec of its source, except for what belongs to one machine only.
func TestFork(t *testing.T) {
	size, now := resource.MustParse("1Gi"), metav1.Now()
	source := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1", Labels: map[string]string{"app": "web"}},
		Spec: v1alpha1.VirtualMachineSpec{
			Restore: &commonv1.Restore{Snapshot: "other", RequestedAt: now},
			Action:  v1alpha1.ActionStopped, RestartRequestedAt: &now, WakeRequestedAt: &now, Image: &v1alpha1.Image{Name: "debian-13"}, CPUModel: "host",
			Disks: []v1alpha1.Disk{
				{Name: "data", Size: &size, Image: &v1alpha1.DiskImage{ImageSource: v1alpha1.ImageSource{Path: "/image"}}}, {Name: "shared", VirtualDisk: "notes"},
			},
		},
	}
	want := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-2"},
		Spec: v1alpha1.VirtualMachineSpec{
			Action: v1alpha1.ActionActive, Image: &v1alpha1.Image{Snapshot: "before"}, CPUModel: "host",
			Disks: []v1alpha1.Disk{{Name: "data", Size: &size}},
		},
	}
	if diff := cmp.Diff(want, newForkOf(source, "web-2", "before")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(source.Spec.Disks) != 2 || source.Spec.Disks[0].Image == nil {
		t.Error("the source has changed")
	}
}

func TestForkNames(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--name is required: that of the new machine"},
		{[]string{"--name", "w", "--number", "0"}, "--number is 0; it must be from 1 to 100"},
		{[]string{"--name", "w", "--number", "101"}, "--number is 101; it must be from 1 to 100"},
	} {
		if _, err := execute(t, append([]string{"fork", "web"}, tt.args...)...); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.args, err, tt.want)
		}
	}
	if got, err := forkNames("w", 1, false); err != nil || !slices.Equal(got, []string{"w"}) {
		t.Errorf("without a number: %q, %v", got, err)
	}
	if got, err := forkNames("w", 2, true); err != nil || !slices.Equal(got, []string{"w-1", "w-2"}) {
		t.Errorf("two: %q, %v", got, err)
	}
}
