package up

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestFlagsOf(t *testing.T) {
	cmd := New()
	if err := cmd.ParseFlags([]string{"--detach", "--threads", "4", "--data-dir", "/a", "--vm-driver=qemu,docker"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"threads": "4", "vm-driver": "qemu,docker"}, flagsOf(cmd.Flags())); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

// A flag that is not given keeps its value; one that is given with its default is back at it.
func TestChangedFlags(t *testing.T) {
	before := map[string]string{"threads": "4", "nodes": "2", "v": "1", "vm-driver": "qemu,docker"}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, nil},
		{[]string{"--nodes=2", "--node=auto", "--vm-driver=qemu", "--vm-driver=docker", "--detach"}, nil},
		{[]string{"--nodes=3", "--node=real", "--threads=4"}, []string{"node", "nodes"}},
		{[]string{"--v=0", "--vm-driver=qemu"}, []string{"v", "vm-driver"}},
	} {
		cmd := New()
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		if got := changedFlags(before, flagsOf(cmd.Flags()), cmd.Flags()); !slices.Equal(got, test.want) {
			t.Errorf("%q changes %q, want %q", test.args, got, test.want)
		}
	}
}

// What takes over from an instance has the flags of both, and the value of every flag can be set again.
func TestKeep(t *testing.T) {
	first := New()
	first.Flags().VisitAll(func(f *pflag.Flag) {
		if text := textOf(f.Value); text != "" {
			if err := first.Flags().Set(f.Name, text); err != nil {
				t.Errorf("--%s=%s: %v", f.Name, text, err)
			}
		}
	})
	first = New()
	if err := first.ParseFlags([]string{"--node=simulated", "--threads=4", `--controllers="/a,b",/c`, "--console-port=-1"}); err != nil {
		t.Fatal(err)
	}
	second := New()
	if err := second.ParseFlags([]string{"--threads=8", "--data-dir=/a"}); err != nil {
		t.Fatal(err)
	}
	o := &options{}
	if err := o.keep(flagsOf(first.Flags()), second.Flags()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"node": "simulated", "threads": "8", "controllers": `"/a,b",/c`, "console-port": "-1"}
	if diff := cmp.Diff(want, o.given); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if want := []string{"--console-port=-1", `--controllers="/a,b",/c`, "--node=simulated"}; !slices.Equal(o.kept, want) {
		t.Errorf("the arguments are %q, want %q", o.kept, want)
	}
}

func TestRefuseChange(t *testing.T) {
	for _, test := range []struct {
		name    string
		found   Process
		changed []string
		want    string
	}{
		{"detached", Process{PID: 7, Detached: true}, []string{"threads"}, ""},
		{"what needs down", Process{PID: 7, Detached: true}, []string{"node", "threads"},
			"keelson is running (pid 7), and --node cannot change while it runs: run `keelson down --data-dir /a` first"},
		{"in the foreground", Process{PID: 7}, []string{"threads", "v"},
			"keelson is running in the foreground (pid 7) with another value of --threads, --v: stop it there, or run `keelson down --data-dir /a` first"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := refuseChange(&test.found, test.changed, "/a"); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if found, err := ReadProcess(dir, os.Getpid()); found != nil || err != nil {
		t.Errorf("without a record: %+v, %v", found, err)
	}
	o := &options{reportFD: 3, manager: manager.Options{Controllers: []string{"foo"}, MetricsAddress: "0"}, given: map[string]string{"threads": "4"}}
	if err := o.record(dir); err != nil {
		t.Fatal(err)
	}
	found, err := ReadProcess(dir, os.Getpid())
	if diff := cmp.Diff(&Process{PID: os.Getpid(), Detached: true, Flags: o.given, Controllers: []string{"foo"}, MetricsAddress: "0"}, found); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if found, err := ReadProcess(dir, os.Getpid()+1); found != nil || err != nil {
		t.Errorf("of another process: %+v, %v", found, err)
	}
}

func TestUntilHandOver(t *testing.T) {
	ctx, handedOver := untilHandOver(t.Context())
	if handedOver() {
		t.Error("handed over at once")
	}
	signals.Send(t, os.Getpid(), handOver)
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the signal had no effect")
	}
	if !handedOver() {
		t.Error("not handed over")
	}
	parent, cancel := context.WithCancel(t.Context())
	ctx, handedOver = untilHandOver(parent)
	cancel()
	<-ctx.Done()
	if handedOver() {
		t.Error("a stop is not a hand-over")
	}
}
