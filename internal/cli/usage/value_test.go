package usage

import (
	"errors"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestBadFlag(t *testing.T) {
	newFlags := func() *pflag.FlagSet {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		fs.Bool("switch", false, "")
		fs.Int("count", 0, "")
		fs.IntP("level", "l", 0, "")
		fs.Duration("pause", 0, "")
		fs.Var(NonEmpty(new(string)), "place", "")
		fs.Var(Positive(new(time.Duration)), "timeout", "")
		return fs
	}
	for _, test := range []struct {
		arg  string
		want string
	}{
		{"--switch=perhaps", `invalid argument "perhaps" for "--switch" flag: must be true or false; see keelson do --help`},
		{"--count=two", `invalid argument "two" for "--count" flag: must be a whole number; see keelson do --help`},
		{"--count=1.5", `invalid argument "1.5" for "--count" flag: must be a whole number; see keelson do --help`},
		{"--count=-99999999999999999999", `invalid argument "-99999999999999999999" for "--count" flag: is too large a number; see keelson do --help`},
		{"-lx", `invalid argument "x" for "--level" flag: must be a whole number; see keelson do --help`},
		{"--pause=10", `invalid argument "10" for "--pause" flag: time: missing unit in duration "10"; see keelson do --help`},
		{"--timeout=0", `invalid argument "0" for "--timeout" flag: must be longer than 0, such as 5m; see keelson do --help`},
		{"--timeout=-5s", `invalid argument "-5s" for "--timeout" flag: must be longer than 0, such as 5m; see keelson do --help`},
		{"--timeout=5", `invalid argument "5" for "--timeout" flag: time: missing unit in duration "5"; see keelson do --help`},
		{"--place=", `invalid argument "" for "--place" flag: must not be empty; see keelson do --help`},
		{"--plaice=x", `unknown flag: --plaice; see keelson do --help`},
		{"--place", `flag needs an argument: --place; see keelson do --help`},
	} {
		t.Run(test.arg, func(t *testing.T) {
			err := BadFlag("keelson do", newFlags().Parse([]string{test.arg}))
			if wrong := (*Error)(nil); !errors.As(err, &wrong) || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestNonEmpty(t *testing.T) {
	place := "default"
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.Var(NonEmpty(&place), "place", "the `directory`")
	if err := fs.Parse(nil); err != nil || place != "default" {
		t.Errorf("not given: %q, %v", place, err)
	}
	if err := fs.Parse([]string{"--place", "/here"}); err != nil || place != "/here" {
		t.Errorf("given: %q, %v", place, err)
	}
}
