// Package usage distinguishes an invalid command line, with exit code 2, from a failed command,
// with exit code 1.
package usage

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// ErrSilent ends a command with exit code 1 whose output already has the reason.
var ErrSilent = errors.New("the output has the reason")

// Error describes an invalid command line.
type Error struct {
	err error
}

// Errorf returns an *Error. The format is that of fmt.Errorf, %w included.
func Errorf(format string, args ...any) error {
	return &Error{err: fmt.Errorf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.err }

// NoArgs is a cobra.PositionalArgs that accepts flags only.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Errorf("%s takes no argument, but was given %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// OneArg returns a cobra.PositionalArgs that accepts flags and one argument. name and meaning
// describe it.
func OneArg(name, meaning string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Errorf("%s takes one %s, %s; got %d", cmd.CommandPath(), name, meaning, len(args))
		}
		return nil
	}
}

// Names is a cobra.PositionalArgs that accepts flags and the names of one or more objects of a kind.
func Names(kind string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Errorf("%s takes one or more NAMEs, each of a %s", cmd.CommandPath(), kind)
		}
		return nil
	}
}
