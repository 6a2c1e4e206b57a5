package owner

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the diagram of the phases into its page")

// transitions has all transitions of a machine. It is what Next is specified by, and what the diagram of the phases is made from.
var transitions = []struct {
	from   Phase
	why    string
	seen   Observed
	wanted Wanted
	to     Phase
	action Action
}{
	{Starting, "QEMU waits to run the guest", Observed{QEMU: Waiting}, Wanted{Power: On}, Running, Continue},
	{Starting, "the guest runs", Observed{QEMU: Runs}, Wanted{Power: On}, Running, Nothing},
	{Starting, "a template is loaded", Observed{QEMU: Stands, Work: Done}, Wanted{Power: On}, Running, Continue},
	{Starting, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Ended, Nothing},
	{Starting, "the template cannot be used", Observed{QEMU: Incoming, Work: Unusable}, Wanted{Power: On}, Ended, Quit},
	{Starting, "the template was not loaded", Observed{QEMU: Incoming, Work: Failed}, Wanted{Power: On}, Ended, Quit},
	{Starting, "nobody loads the template", Observed{QEMU: Incoming}, Wanted{Power: On}, Ended, Quit},
	{Loading, "the memory is loaded", Observed{QEMU: Stands, Work: Done}, Wanted{Power: On}, Running, Continue},
	{Loading, "the memory cannot be used", Observed{QEMU: Gone, Work: Unusable}, Wanted{Power: On}, Ended, Quit},
	{Loading, "the memory was not loaded", Observed{QEMU: Incoming, Work: Failed}, Wanted{Power: On}, Asleep, Quit},
	{Loading, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Asleep, Nothing},
	{Loading, "nobody loads the memory", Observed{QEMU: Incoming}, Wanted{Power: On}, Asleep, Quit},
	{Running, "it is to pause", Observed{QEMU: Runs}, Wanted{Power: Pause}, Paused, Halt},
	{Running, "the guest does not run", Observed{QEMU: Stands}, Wanted{Power: On}, Running, Continue},
	{Running, "a volume is full", Observed{QEMU: NoSpace}, Wanted{Power: On}, Full, Nothing},
	{Running, "a snapshot gets its memory", Observed{QEMU: Runs}, Wanted{Power: On, Work: Copying}, Copying, Nothing},
	{Running, "it is to sleep", Observed{QEMU: Runs}, Wanted{Power: On, Work: Saving}, Saving, Nothing},
	{Running, "it is to be off", Observed{QEMU: Runs, Press: true}, Wanted{Power: PowerOff}, Running, Press},
	{Running, "it is to be off, and the guest does not run", Observed{QEMU: Stands}, Wanted{Power: PowerOff}, Ended, Quit},
	{Running, "the guest has ended", Observed{QEMU: Over}, Wanted{Power: On}, Ended, Quit},
	{Running, "the guest does not become this machine", Observed{QEMU: Runs, Unnamed: true}, Wanted{Power: On}, Ended, Quit},
	{Running, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Ended, Nothing},
	{Paused, "it is to run", Observed{QEMU: Stands}, Wanted{Power: On}, Running, Continue},
	{Paused, "it is to sleep", Observed{QEMU: Stands}, Wanted{Power: Pause, Work: Saving}, Saving, Nothing},
	{Paused, "a snapshot gets its memory", Observed{QEMU: Stands}, Wanted{Power: Pause, Work: Copying}, Copying, Nothing},
	{Paused, "it is to be off", Observed{QEMU: Stands}, Wanted{Power: PowerOff}, Ended, Quit},
	{Paused, "it is to run, and a volume is full", Observed{QEMU: NoSpace}, Wanted{Power: On}, Full, Nothing},
	{Paused, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: Pause}, Ended, Nothing},
	{Full, "there is room", Observed{QEMU: NoSpace, Due: true, Room: true}, Wanted{Power: On}, Full, Continue},
	{Full, "the guest runs at the next check", Observed{QEMU: Runs, Due: true}, Wanted{Power: On}, Running, Nothing},
	{Full, "the guest tries to run", Observed{QEMU: Runs}, Wanted{Power: On}, Full, Nothing},
	{Full, "it is to pause", Observed{QEMU: NoSpace}, Wanted{Power: Pause}, Paused, Nothing},
	{Full, "it is to be off", Observed{QEMU: NoSpace, Press: true}, Wanted{Power: PowerOff}, Full, Press},
	{Full, "the guest tries to run, and it is to sleep", Observed{QEMU: Runs}, Wanted{Power: On, Work: Saving}, Saving, Nothing},
	{Full, "the guest tries to run, and a snapshot gets its memory", Observed{QEMU: Runs}, Wanted{Power: On, Work: Copying}, Copying, Nothing},
	{Full, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Ended, Nothing},
	{Copying, "it is to be off", Observed{QEMU: Stands, Work: Pending}, Wanted{Power: PowerOff}, Copying, Interrupt},
	{Copying, "the copy has ended", Observed{QEMU: Runs, Work: Done}, Wanted{Power: On}, Running, Nothing},
	{Copying, "the copy has failed", Observed{QEMU: Stands, Work: Failed}, Wanted{Power: On}, Running, Continue},
	{Copying, "the copy has ended, and it is to pause", Observed{QEMU: Stands, Work: Done}, Wanted{Power: Pause}, Paused, Nothing},
	{Copying, "the copy has failed, and a volume is full", Observed{QEMU: NoSpace, Work: Failed}, Wanted{Power: On}, Full, Nothing},
	{Copying, "QEMU has ended", Observed{QEMU: Gone, Work: Failed}, Wanted{Power: On}, Ended, Nothing},
	{Saving, "the memory is saved", Observed{QEMU: Stands, Work: Done}, Wanted{Power: On}, Asleep, Nothing},
	{Saving, "the memory is saved, and QEMU has ended", Observed{QEMU: Gone, Work: Done}, Wanted{Power: On}, Asleep, Nothing},
	{Saving, "the memory was not saved", Observed{QEMU: Stands, Work: Failed}, Wanted{Power: On}, Running, Continue},
	{Saving, "the memory was not saved, and it is to pause", Observed{QEMU: Stands, Work: Failed}, Wanted{Power: Pause}, Paused, Nothing},
	{Saving, "the memory was not saved, and a volume is full", Observed{QEMU: NoSpace, Work: Failed}, Wanted{Power: On}, Full, Nothing},
	{Saving, "QEMU has ended", Observed{QEMU: Gone, Work: Failed}, Wanted{Power: On}, Ended, Nothing},
	{Asleep, "QEMU is there", Observed{QEMU: Stands}, Wanted{Power: On}, Asleep, Quit},
	{Asleep, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Asleep, Nothing},
	{Ended, "QEMU is there", Observed{QEMU: Over}, Wanted{Power: On}, Ended, Quit},
	{Ended, "QEMU has ended", Observed{QEMU: Gone}, Wanted{Power: On}, Ended, Nothing},
}

func TestNext(t *testing.T) {
	for _, test := range transitions {
		t.Run(string(test.from)+": "+test.why, func(t *testing.T) {
			if to, action := Next(test.from, test.seen, test.wanted); to != test.to || action != test.action {
				t.Errorf("%q, %q, want %q, %q", to, action, test.to, test.action)
			}
		})
	}
}

// all calls do with everything that can be observed and wanted in a phase.
func all(do func(Phase, Observed, Wanted)) {
	for _, phase := range []Phase{Off, Starting, Loading, Running, Paused, Full, Copying, Saving, Asleep, Ended} {
		for _, status := range []Status{Silent, Waiting, Incoming, Runs, Stands, NoSpace, Over, Gone} {
			for _, work := range []Result{NoWork, Pending, Done, Failed, Unusable} {
				for _, power := range []Power{On, Pause, PowerOff} {
					for _, wants := range []Phase{"", Saving, Copying} {
						for bits := range 16 {
							seen := Observed{QEMU: status, Work: work, Due: bits&1 > 0, Room: bits&2 > 0, Press: bits&4 > 0, Unnamed: bits&8 > 0}
							do(phase, seen, Wanted{Power: power, Work: wants})
						}
					}
				}
			}
		}
	}
}

// What must hold in each case, whatever else is observed and wanted.
func TestNextAlways(t *testing.T) {
	known := map[string]bool{}
	for _, test := range transitions {
		known[string(test.from+test.to)] = true
	}
	all(func(phase Phase, seen Observed, wanted Wanted) {
		next, action := Next(phase, seen, wanted)
		fail := func(why string) {
			t.Fatalf("%s: in %q, with %+v and %+v, it is %q, %q", why, phase, seen, wanted, next, action)
		}
		saved := phase == Loading || phase == Asleep
		switch {
		case next != phase && !known[string(phase+next)]:
			fail("the table does not have it")
		case action == Continue && (seen.QEMU == Gone || phase == Asleep || phase == Ended):
			fail("a guest runs that has ended")
		case phase == Loading && action == Continue && seen.Work != Done:
			fail("a guest runs without its memory")
		case phase == Loading && next == Ended && seen.Work != Unusable:
			fail("memory is lost that can be used")
		case next == Asleep && !saved && (phase != Saving || seen.Work != Done):
			fail("it is asleep without memory")
		case action == Quit && next != Ended && next != Asleep:
			fail("QEMU ends, and the guest has not")
		case seen.Work == Pending && (phase == Saving || phase == Copying || phase == Loading) && next != phase:
			fail("the work has not ended")
		case (action == Press || action == Interrupt) && wanted.Power != PowerOff:
			fail("nobody wants that it is off")
		}
		if again, _ := Next(next, Observed{QEMU: Gone, Work: NoWork}, wanted); seen.QEMU == Gone && next != Off && seen.Work != Pending && again != Asleep && again != Ended {
			fail("QEMU has ended, and the machine has not")
		}
	})
}

// The page has the diagram of all transitions.
func TestDiagram(t *testing.T) {
	const begin, end = "<!-- phases -->\n", "<!-- end of phases -->"
	var diagram strings.Builder
	diagram.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> Starting: start\n    Asleep --> Loading: start\n")
	seen := map[string]bool{}
	for _, test := range transitions {
		if edge := string(test.from + " " + test.to); test.from != test.to && !seen[edge] {
			seen[edge] = true
			fmt.Fprintf(&diagram, "    %s --> %s: %s\n", test.from, test.to, test.why)
		}
	}
	diagram.WriteString("    Ended --> [*]\n```\n\n| Phase | When | Next | Action |\n| --- | --- | --- | --- |\n")
	for _, test := range transitions {
		fmt.Fprintf(&diagram, "| %s | %s | %s | %s |\n", test.from, test.why, test.to, test.action)
	}
	page := filepath.Join("..", "..", "..", "docs", "internals", "machine.md")
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), begin)
	is, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the diagram", page)
	}
	if is == diagram.String() {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./internal/machine/owner -run TestDiagram -update", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+diagram.String()+end+after), 0o644); err != nil { //nolint:gosec // a page
		t.Fatal(err)
	}
}
