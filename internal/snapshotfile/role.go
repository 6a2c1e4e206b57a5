package snapshotfile

import (
	"fmt"
	"os"
	"syscall"
)

// Name is the name of this program, argv[0], in the role of a reader of snapshots.
const Name = "keelson-snapshotfile"

// What the role does.
const (
	verbRevision = "revision"
	verbObjects  = "objects"
)

// exitUnreadable is the exit code of the role if it has said why it cannot read a snapshot.
const exitUnreadable = 3

// init does nothing unless this program was started by run. Then it does what the verb says, and ends the program.
func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	if len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "%s: it is started by keelson, not by hand\n", Name)
		syscall.Exit(2)
	}
	var err error
	switch path := os.Args[2]; os.Args[1] {
	case verbRevision:
		var revision int64
		if revision, err = revisionOf(path); err == nil {
			_, err = fmt.Print(revision)
		}
	case verbObjects:
		err = writeObjects(path, os.Stdout)
	default:
		err = fmt.Errorf("%q is no verb", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(exitUnreadable)
	}
	// Not os.Exit, whose hooks belong to packages that were not initialised.
	syscall.Exit(0)
}
