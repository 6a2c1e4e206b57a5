package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFilter(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want result
		good bool
		// says are parts of the output, hides are not in it.
		says, hides []string
		// repeats is a part of the messages at the end.
		repeats string
	}{{
		name: "passed: only the line of the package is shown",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`,
		want:  result{passed: 1},
		good:  true,
		says:  []string{"ok  \tp\t0.1s\n"},
		hides: []string{"noise", "PASS"},
	}, {
		name: "slow tests are listed, without their subtests",
		in: `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":59.9}
{"Action":"pass","Package":"p","Test":"TestB/one","Elapsed":70}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":71.4}
`,
		want: result{passed: 3, slow: []string{"   71 s  p TestB\n"}},
		good: true,
	}, {
		name: "a skipped test fails, with the reason for the skip",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: SKIP: no engine\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
`,
		want: result{passed: 1, skipped: 1},
		says: []string{"SKIPPED p TestB\n", "no engine", "ok  \tp"},
	}, {
		name: "a package without tests is not a skipped test",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}
`,
		want: result{passed: 1},
		good: true,
	}, {
		name: "a failed test shows its output; its package counts too",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"want 1\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`,
		want: result{failed: 2},
		says: []string{"FAILED p TestA\n", "want 1\n"},
	}, {
		name: "the last messages of a failed test are repeated, without commands and logs",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: want 1\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"          and 2\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        {\"level\":\"INFO\"}\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:8: $ kubectl get foos\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: the end\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
`,
		want:    result{failed: 1},
		says:    []string{"INFO"},
		repeats: "FAILED p TestA\n    a_test.go:3: want 1\n          and 2\n    a_test.go:9: the end\n",
	}, {
		name: "a package that does not build",
		in: `{"Action":"build-output","ImportPath":"p","Output":"p/a.go:1: undefined: x\n"}
{"Action":"fail","Package":"p"}
`,
		want: result{failed: 1},
		says: []string{"undefined: x"},
	}, {
		name: "a test binary that was killed",
		in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"waiting\n"}
`,
		want: result{unfinished: 1},
		says: []string{"UNFINISHED p TestA\n", "waiting\n"},
	}, {
		name: "no test ran at all",
		in:   "",
	}, {
		name: "other output, and a last line without an end, is copied",
		in:   "starting the API server\n{broken",
		says: []string{"starting the API server\n", "{broken"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			got, err := filter(strings.NewReader(tt.in), &out)
			if err != nil {
				t.Fatalf("filter: %v", err)
			}
			if !strings.Contains(got.messages, tt.repeats) {
				t.Errorf("messages lack %q:\n%s", tt.repeats, got.messages)
			}
			got.messages = ""
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(result{}), cmpopts.IgnoreFields(result{}, "wrong", "crashed")); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got.good() != tt.good {
				t.Errorf("good() = %v, want %v", got.good(), tt.good)
			}
			for _, text := range tt.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("the output lacks %q:\n%s", text, out.String())
				}
			}
			for _, text := range tt.hides {
				if strings.Contains(out.String(), text) {
					t.Errorf("the output has %q:\n%s", text, out.String())
				}
			}
		})
	}
}
