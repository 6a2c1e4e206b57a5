package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	passes = `{"Action":"pass","Package":"p","Test":"TestGood"}
`
	failsA = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"output","Package":"p","Test":"TestA/one","Output":"    a_test.go:3: want 1\n"}
{"Action":"fail","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`
)

func TestRepeats(t *testing.T) {
	many := ""
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		many += `{"Action":"fail","Package":"p","Test":"Test` + name + `"}` + "\n"
	}
	for _, tt := range []struct {
		name, in string
		want     []test
		err      string
	}{
		{"a test is repeated as a whole, alone", passes + failsA, []test{{"p", "TestA"}}, ""},
		{"after a panic, other tests of the package did not run",
			passes + `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: nil pointer [recovered]\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`, []test{{"p", ""}}, ""},
		{"a package that reached its time limit is repeated", passes + `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`, []test{{"p", ""}}, ""},
		{"a package that fails although no test does is repeated", passes + `{"Action":"fail","Package":"p"}` + "\n", []test{{"p", ""}}, ""},
		{"packages are told apart", passes + failsA + strings.ReplaceAll(failsA, `"p"`, `"q"`), []test{{"p", "TestA"}, {"q", "TestA"}}, ""},
		{"many failures are no accident", passes + many, nil, "6 tests have failed"},
		{"what does not compile is not repeated", passes + failsA + `{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}` + "\n", nil, "does not compile"},
		{"a skipped test is not repeated", passes + failsA + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n", nil, "was skipped"},
		{"if nothing has passed, nothing is repeated", failsA, nil, "no test has passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := filter(strings.NewReader(tt.in), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got.good() {
				t.Error("it is good")
			}
			repeats, err := got.repeats()
			if diff := cmp.Diff(tt.want, repeats, cmp.AllowUnexported(test{})); diff != "" || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The list has the first error, which may be that of a subtest.
func TestFlaky(t *testing.T) {
	got, err := filter(strings.NewReader(passes+failsA), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "flaky")
	for _, which := range []test{{"p", "TestA"}, {"q", ""}} {
		if err := report(path, flaky(which, got.wrong[which])); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if want := "FLAKY p TestA: a_test.go:3: want 1\nFLAKY q: it did not finish\n"; err != nil || string(raw) != want {
		t.Errorf("%v, got %q, want %q", err, raw, want)
	}
}
