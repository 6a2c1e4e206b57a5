package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/cli"
	cliprogram "github.com/keelson-dev/keelson/internal/cli/program"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The verbs for the objects of each kind, on an API without controllers. NS stands for the namespace.
func TestVerbs(t *testing.T) {
	namespace := env.Namespace(t)
	c := newClient(t)
	newObjects(t, c, namespace)
	kubeconfig := writeKubeconfig(t, env.Config(t), "")
	t.Setenv("HOME", t.TempDir()) // for the SSH key of vm create
	for _, test := range []struct {
		words string
		fails bool
		want  []string // in the output
		not   string   // not in the output
	}{
		{words: "vm list", want: []string{"NAME   STATUS", "ADDRESS\ndb ", "\nweb "}, not: "DRIVER"},
		{words: "vm ls -o wide", want: []string{"DRIVER", "web"}},
		{words: "vm list -A", want: []string{"NAMESPACE", "NS   web"}},
		{words: "vm list -o name", want: []string{"virtualmachine.cloudnative.tw/db\nvirtualmachine.cloudnative.tw/web\n"}},
		{words: "vm list -o json", want: []string{`"kind": "List"`, `"name": "web"`}, not: "managedFields"},
		{words: "vm list -o yaml", want: []string{"kind: List\n", "    name: web\n"}},
		{words: "vm describe web db", want: []string{"Name: web\nNamespace: NS\nCreated: ", "Spec:\n", "\nNo events.\n", "Name: db\n"}},
		{words: "vm describe nope", fails: true, want: []string{`there is no VirtualMachine "nope" in the namespace NS; keelson vm list --all-namespaces lists them`}},

		{words: "vm stop web --dry-run=client", want: []string{"virtualmachine/web stopping (dry run)\n"}},
		{words: "vm stop web --dry-run=server", want: []string{"virtualmachine/web stopping (server dry run)\n"}},
		{words: "vm list -o yaml", not: "action: stopped"},
		{words: "vm stop nope web", fails: true, want: []string{"virtualmachine/web stopping\n", `there is no VirtualMachine "nope"`}},
		{words: "vm list -o yaml", want: []string{"action: stopped"}},
		{words: "vm start web db -o name", want: []string{"virtualmachine.cloudnative.tw/web\nvirtualmachine.cloudnative.tw/db\n"}},

		{words: "vm create new --driver fake --dry-run=server", want: []string{"virtualmachine/new created (server dry run)\n"}},
		{words: "vm create web --driver fake", fails: true, want: []string{"VirtualMachine NS/web exists already; choose another name, or delete it: keelson vm delete web --namespace NS"}},
		{words: "vm create new --driver fake --snapshot nope --wait", fails: true, want: []string{`there is no VirtualMachineSnapshot "nope" in the namespace NS`}},
		{words: "vm create new --driver fake --snapshot default/nope", fails: true, want: []string{`there is no VirtualMachineSnapshot "nope" in the namespace default`}},
		{words: "vm list", not: "new"},

		{words: "vm snapshot nope", fails: true, want: []string{`there is no VirtualMachine "nope"`}},
		{words: "vm snapshot web --name before --dry-run=server", want: []string{"virtualmachinesnapshot/before created (server dry run)\n"}},
		{words: "vm snapshot list", want: []string{"No VirtualMachineSnapshots found.\n"}},
		{words: "vm snapshot web --name before", want: []string{"virtualmachinesnapshot/before created\n"}},
		{words: "vm snapshot web --name before", fails: true, want: []string{"keelson vm snapshot delete before --namespace NS"}},
		{words: "vm snapshot list", want: []string{"MACHINE", "before   web"}},
		{words: "vm create copy --driver fake --snapshot before", want: []string{"virtualmachine/copy created\n"}},
		{words: "vm snapshot delete before --wait", want: []string{"virtualmachinesnapshot/before deleting\n"}},
		{words: "vm delete web --dry-run=server", want: []string{"virtualmachine/web deleting (server dry run)\n"}},
		{words: "vm delete nope web db --wait", fails: true, want: []string{"virtualmachine/web deleting\nvirtualmachine/db deleting\n", `there is no VirtualMachine "nope"`}},
		{words: "vm rm copy", want: []string{"virtualmachine/copy deleting\n"}},
		{words: "vm list", want: []string{"No VirtualMachines found.\n"}},

		{words: "vm image list -o name", want: []string{"virtualmachineimage.cloudnative.tw/image-NS\n"}},
		{words: "vm image rm image-NS", want: []string{"virtualmachineimage/image-NS deleted\n"}},

		{words: "cluster list", want: []string{"ENDPOINT", "cluster-NS"}},
		{words: "cluster stop cluster-NS", want: []string{"cluster/cluster-NS stopping\n"}},
		{words: "cluster list -o yaml", want: []string{"running: false"}},
		{words: "cluster start cluster-NS", want: []string{"cluster/cluster-NS starting\n"}},
		{words: "cluster upgrade cluster-NS --version v1.36.3", want: []string{"cluster/cluster-NS upgrading\n"}},
		{words: "cluster describe cluster-NS", want: []string{"Name: cluster-NS\n", "  running: true\n", "  version: v1.36.3\n"}},
		{words: "cluster snapshot cluster-NS --name s-NS", want: []string{"clustersnapshot/s-NS created\n"}},
		{words: "cluster snapshot cluster-NS --name s-NS", fails: true, want: []string{"ClusterSnapshot s-NS exists already"}},
		{words: "cluster snapshot nope", fails: true, want: []string{`there is no Cluster "nope"`}},
		{words: "cluster snapshot ls", want: []string{"CLUSTER", "s-NS"}},
		{words: "cluster snapshot rm s-NS", want: []string{"clustersnapshot/s-NS deleting\n"}},
		{words: "cluster delete cluster-NS --wait", want: []string{"cluster/cluster-NS deleting\n"}},
		{words: "cluster delete cluster-NS", fails: true, want: []string{`there is no Cluster "cluster-NS"; keelson cluster list lists them`}},

		{words: "crontab suspend backup", want: []string{"crontab/backup suspended\n"}},
		{words: "crontab list", want: []string{"SCHEDULE", "backup", "true"}},
		{words: "crontab resume backup", want: []string{"crontab/backup resumed\n"}},
		{words: "crontab delete backup", want: []string{"crontab/backup deleting\n"}},
	} {
		here := strings.NewReplacer("NS", namespace).Replace
		words := append(strings.Fields(here(test.words)), "--kubeconfig="+kubeconfig, "--context=other")
		if !strings.HasPrefix(test.words, "cluster") && !strings.Contains(test.words, "-A") {
			words = append(words, "--namespace="+namespace)
		}
		var out bytes.Buffer
		wantCode := cliprogram.ExitOK
		if test.fails {
			wantCode = cliprogram.ExitFailure
		}
		// Not a process for each: starting one takes longer than what it does.
		if code := cli.Main(t.Context(), words, &out, &out); code != wantCode {
			t.Errorf("%s: exit code %d, want %d\n%s", test.words, code, wantCode, &out)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), here(want)) {
				t.Errorf("%s: no %q in\n%s", test.words, here(want), &out)
			}
		}
		if test.not != "" && strings.Contains(out.String(), test.not) {
			t.Errorf("%s: %q in\n%s", test.words, test.not, &out)
		}
	}
}
