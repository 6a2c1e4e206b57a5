package errors // want: revive

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func Exported(err error) error { // want: revive
	os.Remove("a") // want: errcheck
	fmt.Fprintln(os.Stderr, "nobody to tell")
	os.Stdin.Close()
	os.Stdout.Sync()   // want: errcheck
	if err == io.EOF { // want: errorlint
		return nil
	}
	//nolint:errcheck // Explained: it is gone anyway.
	os.Remove("b")
	/* want: nolintlint */ os.Remove("c") //nolint:errcheck
	/* want: nolintlint */ os.Remove("d") //nolint // Explained, but not which linter.
	fmt.Printf("%d\n", "text")            // want: govet
	_ = strings.Replace("a", "a", "b", 0) // want: staticcheck
	n := 1                                // want: ineffassign
	n = 2
	return fmt.Errorf("wrap: %v %d", err, n) // want: errorlint
}

func unusedFunction() {} // want: unused
