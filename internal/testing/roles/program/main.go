// Command program is keelson with the roles of its processes only: a shim, a sandbox, a switch, and a reader of snapshots.
package main

import (
	"fmt"
	"os"

	_ "github.com/keelson-dev/keelson/internal/network/role"
	_ "github.com/keelson-dev/keelson/internal/process/shim"
	_ "github.com/keelson-dev/keelson/internal/snapshotfile"
)

func main() {
	fmt.Fprintf(os.Stderr, "%s is not a role\n", os.Args[0])
	os.Exit(2)
}
