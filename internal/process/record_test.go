package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	rec := record{ID: "a", Nonce: "new", BootID: "today"}
	run := &running{Nonce: "new", identity: identity{PID: 7, Start: "1"}}
	oldRun := &running{Nonce: "old", identity: identity{PID: 7, Start: "1"}}
	exit := &exited{Nonce: "new"}
	oldExit := &exited{Nonce: "old"}
	for _, test := range []struct {
		name string
		run  *running
		exit *exited
		live liveness
		want State
	}{
		{"intent only, the shim at work", nil, nil, liveness{"today", false, true}, Starting},
		{"intent only, nobody there", nil, nil, liveness{"today", false, false}, Lost},
		{"intent only, the child found by its marker", nil, nil, liveness{"today", true, false}, Running},
		{"child and shim alive, running.json on its way", nil, nil, liveness{"today", true, true}, Running},
		{"intent only, from before the reboot", nil, nil, liveness{"yesterday", false, true}, Lost},
		{"running", run, nil, liveness{"today", true, true}, Running},
		{"running, its shim killed", run, nil, liveness{"today", true, false}, Running},
		{"child and shim gone", run, nil, liveness{"today", false, false}, Lost},
		{"child gone, the shim has not noted it", run, nil, liveness{"today", false, true}, Lost},
		{"from before the reboot, the pid is somebody else", run, nil, liveness{"yesterday", true, true}, Lost},
		{"exit noted", run, exit, liveness{"today", false, false}, Exited},
		{"exit noted, the shim ending", run, exit, liveness{"today", false, true}, Exited},
		{"exit noted, then a reboot", run, exit, liveness{"yesterday", false, false}, Exited},
		{"exit noted, running.json lost", nil, exit, liveness{"today", false, false}, Exited},
		{"files of the start before, the new shim at work", oldRun, oldExit, liveness{"today", false, true}, Starting},
		{"files of the start before, nobody there", oldRun, oldExit, liveness{"today", false, false}, Lost},
		{"exit of the start before, the new child alive", run, oldExit, liveness{"today", true, true}, Running},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, deriveState(rec, test.run, test.exit, test.live)); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"etcd": true, "kube-apiserver": true, "vm-1.2": true, "0": true, strings.Repeat("a", 200): true,
		"": false, ".": false, "..": false, ".hidden": false, "-a": false, "a/b": false, "A": false, "a b": false,
		"lock": false, "ä": false, strings.Repeat("a", 201): false,
	} {
		if got := isValidID(id); got != want {
			t.Errorf("isValidID(%q) = %t, want %t", id, got, want)
		}
	}
}

func TestLogTail(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 1000)
	for _, test := range []struct {
		name     string
		content  string
		from, to int64
		want     string
	}{
		{"everything", "one\ntwo\n", 0, -1, "one\ntwo\n"},
		{"not what an earlier process wrote", "one\ntwo\n", 4, -1, "two\n"},
		{"not what a later process wrote", "one\ntwo\n", 0, 4, "one\n"},
		{"a log that was rotated since", "two\n", 400, 900, "two\n"},
		{"whole lines only", "x" + long, 0, -1, long[:logTailBytes-16]},
		{"one endless line", strings.Repeat("x", 3*logTailBytes), 0, -1, strings.Repeat("x", logTailBytes)},
		{"no text", "a\xffb", 0, -1, "a?b"},
		{"nothing", "", 0, -1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, logTail(path, test.from, test.to)); diff != "" {
				t.Errorf("tail (-want +got):\n%s", diff)
			}
		})
	}
	if got := logTail(filepath.Join(t.TempDir(), "missing"), 0, -1); got != "" {
		t.Errorf("tail of a missing log: %q", got)
	}
}
