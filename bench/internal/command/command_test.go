package command

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type options struct {
	Sizes  []int
	Rounds int
	Output
}

func parse(args []string) (options, error) {
	o := options{Sizes: []int{1, 10}, Rounds: 7}
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("sizes", "sizes", Sizes(&o.Sizes, "things", 100))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds")
	o.AddFlags(fs)
	err := Parse(fs, args, &o, options{Sizes: []int{1}, Rounds: 1}, func(o *options) error {
		if o.Rounds < 1 {
			return errors.New("there must be a round")
		}
		return nil
	})
	return o, err
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want options
	}{
		{"nothing gives the defaults", nil, options{Sizes: []int{1, 10}, Rounds: 7}},
		{"quick gives less of everything", []string{"--quick"}, options{Sizes: []int{1}, Rounds: 1}},
		{"flags count beside quick, wherever they are", []string{"--sizes=7,3,0,7", "--strict", "--quick", "--json=a"},
			options{Sizes: []int{3, 7}, Rounds: 1, Output: Output{JSON: "a", Strict: true}}},
		{"no sizes at all", []string{"--sizes=0"}, options{Rounds: 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(test.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, args := range [][]string{{"--sizes=many"}, {"--sizes=-1"}, {"--sizes=101"}, {"--rounds=0"}, {"--quick", "--rounds=0"}, {"extra"}, {"--none"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%v) gave no error", args)
		}
	}
	if _, err := parse([]string{"--help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help gives %v", err)
	}
}

func TestSave(t *testing.T) {
	if err := (Output{}).save(1); err != nil {
		t.Errorf("nowhere: %v", err)
	}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := (Output{JSON: file}).save(map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "{\n  \"a\": 1\n}\n"; err != nil || string(got) != want {
		t.Errorf("the file has %q, %v, want %q", got, err, want)
	}
}
