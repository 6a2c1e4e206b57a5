package usage

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// NonEmpty returns the value of a text flag that must not be empty: with an unset variable, a
// script must not get the default.
func NonEmpty(target *string) pflag.Value { return (*nonEmpty)(target) }

type nonEmpty string

func (v *nonEmpty) String() string { return string(*v) }
func (v *nonEmpty) Type() string   { return "string" }
func (v *nonEmpty) Set(value string) error {
	if value == "" {
		return errors.New("must not be empty")
	}
	*v = nonEmpty(value)
	return nil
}

// Positive returns the value of a flag for a duration that must be longer than 0.
func Positive(target *time.Duration) pflag.Value { return (*positive)(target) }

type positive time.Duration

func (v *positive) String() string { return time.Duration(*v).String() }
func (v *positive) Type() string   { return "duration" }
func (v *positive) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = errors.New("must be longer than 0, such as 5m")
	}
	*v = positive(d)
	return err
}

// BadFlag returns the *Error for a flag that could not be parsed. It replaces the messages of
// package strconv, which address programmers.
func BadFlag(command string, err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return Errorf("%w; see %s --help", err, command)
	}
	must := "must be a whole number"
	switch {
	case number.Func == "ParseBool":
		must = "must be true or false"
	case errors.Is(number, strconv.ErrRange):
		must = "is too large a number"
	}
	return Errorf("invalid argument %q for \"--%s\" flag: %s; see %s --help", invalid.GetValue(), invalid.GetFlag().Name, must, command)
}
