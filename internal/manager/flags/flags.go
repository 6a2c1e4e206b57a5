// Package flags has types of command line flags that pflag lacks.
package flags

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// OptionalBool adds a boolean flag to fs. The target stays nil if the flag is not given.
func OptionalBool(fs *pflag.FlagSet, target **bool, name, usage string) {
	fs.Var(optionalBool{target}, name, usage)
	fs.Lookup(name).NoOptDefVal = "true"
}

type optionalBool struct{ target **bool }

func (b optionalBool) Set(text string) error {
	value, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("must be true or false")
	}
	*b.target = &value
	return nil
}

func (b optionalBool) String() string {
	if b.target == nil || *b.target == nil {
		return ""
	}
	return strconv.FormatBool(**b.target)
}

func (optionalBool) Type() string { return "bool" }
