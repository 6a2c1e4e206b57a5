package qemu

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// forksVariable is the number of forks in the test of this file.
const forksVariable = "KEELSON_TEST_FORKS"

// Forks in turns, which share the memory of their snapshot, all have the memory and the disk of its moment, whatever the forks before them have
// written to theirs.
func TestLongForksInTurnsAreEqual(t *testing.T) {
	number := 20
	if given := os.Getenv(forksVariable); given != "" {
		var err error
		if number, err = strconv.Atoi(given); err != nil {
			t.Fatal(err)
		}
	}
	needGuest(t)
	w := newFixture(t)
	source := named("default", "web")
	source.DiskBytes = 64 << 20
	const sums = "md5sum </tmp/file; head -c 8M /dev/vda | md5sum"
	web := w.boot(source)[0]
	web.exec("head -c 16M /dev/urandom >/tmp/file; head -c 8M /dev/urandom >/dev/vda; sync")
	want := web.exec(sums)
	id := snapshotOf(1, "first")
	w.takesMemory(id, source)
	for i := range number {
		g := &testGuest{w, forkOf(source, fmt.Sprintf("fork-%d", i), id)}
		w.reach(g.machine, drivertest.ToRun)
		if got := g.exec(sums); got != want {
			t.Fatalf("the fork %d has\n%s\nwant\n%s", i, got, want)
		}
		if shares := w.driver.machines[g.machine.UID].def.MemoryShared; shares != (i > 0) || !w.wasInstant(g.machine) {
			t.Errorf("the fork %d shares its memory: %v; or it has booted", i, shares)
		}
		g.exec("head -c 16M /dev/zero | tr '\\0' x >/tmp/file; head -c 8M /dev/zero | tr '\\0' x >/dev/vda; sync")
		g.remove()
	}
	if got := web.exec(sums); got != want {
		t.Errorf("the machine of the snapshot has\n%s\nwant\n%s", got, want)
	}
	w.deleteSnapshot(id)
}
