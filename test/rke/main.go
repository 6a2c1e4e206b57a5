// Command rke is a stand-in for the program rke in tests and trials of the engine rke: it has the
// same command line, including its pitfalls, but creates no cluster. See package standin.
package main

import (
	"os"

	"github.com/keelson-dev/keelson/test/rke/standin"
)

func main() { os.Exit(standin.Main(os.Args[1:], os.Stdin, os.Stdout)) }
