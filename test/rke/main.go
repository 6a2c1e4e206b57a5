// Command rke stands in for the program rke in tests and trials of the engine rke: it keeps the contract of its command
// line, with its traps, and makes no cluster. See package standin.
package main

import (
	"os"

	"github.com/keelson-dev/keelson/test/rke/standin"
)

func main() { os.Exit(standin.Main(os.Args[1:], os.Stdin, os.Stdout)) }
