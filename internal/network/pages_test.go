package network

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgramMappings(t *testing.T) {
	const maps = `00400000-0214c000 r-xp 00000000 08:01 42                                 /opt/a b/keelson
0214c000-04480000 r--p 01d4c000 08:01 42                                 /opt/a b/keelson
04480000-0452e000 rw-p 04080000 08:01 42                                 /opt/a b/keelson
0452e000-0657d000 rw-p 00000000 00:00 0
c000000000-c000400000 rw-p 00000000 00:00 0                              [heap]
7f0000000000-7f0000001000 r--p 00000000 08:01 43                         /other/opt/a b/keelson
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
`
	want := []mapping{{0x400000, 0x214c000}, {0x214c000, 0x4480000}}
	if diff := cmp.Diff(want, programMappings([]byte(maps), "/opt/a b/keelson"), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

// The program goes on without its pages, and has fewer of them.
func TestDropProgram(t *testing.T) {
	before := programPages(t)
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
	if after := programPages(t); after >= before {
		t.Errorf("%d kB of files are in memory, were %d kB", after, before)
	}
}

// programPages returns the kB of files in the memory of this process.
func programPages(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no RssFile in %s", status)
	}
	size, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return size
}
