package cron

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// oracles is the content of testdata/oracles.txt.gz, which hack/cronvectors/generate.js describes
// and generates.
type oracles struct {
	Versions  map[string]string `json:"versions"`
	Runs      int               `json:"runs"`
	Zones     []oracleZone      `json:"zones"`
	Schedules []string          `json:"schedules"`

	answers [][][]string // by schedule, zone and start: "croner|cron-parser", or what both say
}

// oracleZone is a zone as seen by the libraries. Their version of the zone database may differ from
// the local one.
type oracleZone struct {
	Name    string     `json:"name"`
	Offset  int64      `json:"offset"`
	Changes [][2]int64 `json:"changes"` // instant, offset from then on
	Starts  []int64    `json:"starts"`
}

// theOracles reads the file once for all tests.
var theOracles = sync.OnceValues(readOracles)

func mustReadOracles(t *testing.T) *oracles {
	t.Helper()
	o, err := theOracles()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func readOracles() (*oracles, error) {
	f, err := os.Open("testdata/oracles.txt.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	o := &oracles{}
	if err := json.Unmarshal(lines.Bytes(), o); err != nil {
		return nil, err
	}
	for _, schedule := range o.Schedules {
		var ofZones [][]string
		for _, zone := range o.Zones {
			lines.Scan()
			answers := strings.Fields(lines.Text())
			if len(answers) != len(zone.Starts) {
				return nil, fmt.Errorf("%q in %s has %d answers, want %d", schedule, zone.Name, len(answers), len(zone.Starts))
			}
			ofZones = append(ofZones, answers)
		}
		o.answers = append(o.answers, ofZones)
	}
	if lines.Scan() || lines.Err() != nil {
		return nil, fmt.Errorf("the file has more than there are schedules and zones, or is broken: %w", lines.Err())
	}
	return o, nil
}

// location builds a time zone from the changes in the file (RFC 9636, without a rule for later
// times).
func (z oracleZone) location(t *testing.T) *time.Location {
	t.Helper()
	types := []int64{z.Offset} // the first is that of the time before all changes
	var instants, kinds []byte
	for _, change := range z.Changes {
		kind := slices.Index(types[1:], change[1]) + 1
		if kind == 0 {
			kind, types = len(types), append(types, change[1])
		}
		instants = binary.BigEndian.AppendUint64(instants, uint64(change[0]))
		kinds = append(kinds, byte(kind))
	}
	var b bytes.Buffer
	header := func(times, types, characters int) {
		b.WriteString("TZif2" + strings.Repeat("\x00", 15))
		for _, n := range []int{0, 0, 0, times, types, characters} {
			b.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
	}
	header(0, 0, 0) // the part for those who cannot read 64 bits
	header(len(kinds), len(types), 1)
	b.Write(instants)
	b.Write(kinds)
	for _, offset := range types {
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(int32(offset))))
		b.WriteString("\x00\x00")
	}
	b.WriteString("\x00\n\n")
	location, err := time.LoadLocationFromTZData(z.Name, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return location
}

// encode encodes runs in the format of the file.
func (o *oracles) encode(start int64, runs []int64) string {
	var b []byte
	before := start - start%secondsPerDay
	for i, run := range runs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, run-before, 36)
		before = run
	}
	switch {
	case len(runs) == 0:
		return "-"
	case len(runs) < o.Runs:
		return string(b) + ",-"
	}
	return string(b)
}

// runsAfter returns up to n runs after start, and checks that Prev and Count agree.
func runsAfter(t *testing.T, p *Plan, start int64, n int) []int64 {
	var runs []int64
	last := time.Unix(start, 0)
	for len(runs) < n {
		next, ok := p.Next(last)
		if !ok {
			break
		}
		if prev, ok := p.Prev(next.Add(1)); !ok || !prev.Equal(next) {
			t.Fatalf("Prev of %v in %s right after %s = %s", p.schedules, p.location, next, prev)
		}
		if prev, ok := p.Prev(next); ok && prev.After(last) || len(runs) > 0 && !prev.Equal(last) {
			t.Fatalf("Prev of %v in %s before %s = %s, but Next of %s is %s", p.schedules, p.location, next, prev, last, next)
		}
		runs, last = append(runs, next.Unix()), next
	}
	if got := p.Count(time.Unix(start, 0), last); got != len(runs) {
		t.Fatalf("Count of %v in %s from %d to %s = %d, want %d", p.schedules, p.location, start, last, got, len(runs))
	}
	return runs
}

// TestLongOracles compares the package with two independent libraries. docs/internals/schedules.md
// says where and why they differ; TestPlanAgreesWithSlowRuns shows that an answer which is theirs is
// not needed for being right.
func TestLongOracles(t *testing.T) {
	o := mustReadOracles(t)
	for _, rule := range []DaylightSaving{Once, Literal} {
		t.Run(string(rule), func(t *testing.T) {
			counts := make([]map[[2]bool]int, len(o.Zones))
			t.Run("zones", func(t *testing.T) {
				for z, zone := range o.Zones {
					t.Run(zone.Name, func(t *testing.T) {
						t.Parallel()
						counts[z] = map[[2]bool]int{}
						for s := range o.Schedules {
							o.compare(t, rule, s, z, counts[z])
						}
					})
				}
			})
			total := map[[2]bool]int{}
			for _, ofZone := range counts {
				for agreement, n := range ofZone {
					total[agreement] += n
				}
			}
			if diff := cmp.Diff(wantAgreement[rule], total); diff != "" {
				t.Errorf("answers that are those of croner, and of cron-parser (-want +got):\n%s", diff)
			}
		})
	}
}

// compare counts the answers for one schedule in one zone that are those of each library.
func (o *oracles) compare(t *testing.T, rule DaylightSaving, s, z int, counts map[[2]bool]int) {
	schedule, zone := mustParse(t, o.Schedules[s], ""), o.Zones[z]
	p := mustNew(t, Options{Schedules: []*Schedule{schedule}, Location: zone.location(t), DaylightSaving: rule})
	for i, start := range zone.Starts {
		text := o.encode(start, runsAfter(t, p, start, o.Runs))
		first, second, differ := strings.Cut(o.answers[s][z][i], "|")
		if !differ {
			second = first
		}
		counts[[2]bool{first == text, second == text}]++
	}
}

// TestOraclesInZonesOfThisMachine repeats the comparison with the local or embedded zone database,
// for zones in which it agrees with that of the libraries.
func TestOraclesInZonesOfThisMachine(t *testing.T) {
	o := mustReadOracles(t)
	same := 0
	for _, zone := range o.Zones {
		location := mustLoad(t, zone.Name)
		if at, differs := zone.differsFrom(location); differs {
			t.Logf("%s has another offset at %s than in the file, which is of %s: not compared", zone.Name, at, o.Versions["tz"])
			continue
		}
		same++
		t.Run(zone.Name, func(t *testing.T) {
			t.Parallel()
			for _, text := range o.Schedules {
				options := Options{Schedules: []*Schedule{mustParse(t, text, "")}, Location: zone.location(t)}
				inFile := mustNew(t, options)
				options.Location = location
				here := mustNew(t, options)
				for _, start := range zone.Starts {
					want, wantOK := inFile.Next(time.Unix(start, 0))
					got, gotOK := here.Next(time.Unix(start, 0))
					if !got.Equal(want) || gotOK != wantOK {
						t.Fatalf("%q after %d: %s with the zones of this machine, %s with those of the file", text, start, got, want)
					}
				}
			}
		})
	}
	if same < len(o.Zones)/2 {
		t.Errorf("%d of %d zones are as in the file: run make cronvectors", same, len(o.Zones))
	}
}

// differsFrom returns an instant at which the offset of a location differs from the file.
func (z oracleZone) differsFrom(location *time.Location) (time.Time, bool) {
	offsetAt := func(instant int64) int64 {
		_, offset := time.Unix(instant, 0).In(location).Zone()
		return int64(offset)
	}
	before := z.Offset
	for i, change := range z.Changes {
		next := change[0] + 1
		if i+1 < len(z.Changes) {
			next = z.Changes[i+1][0]
		}
		if offsetAt(change[0]-1) != before || offsetAt(change[0]) != change[1] || offsetAt(next-1) != change[1] {
			return time.Unix(change[0], 0).UTC(), true
		}
		before = change[1]
	}
	first, last := slices.Min(z.Starts), slices.Max(z.Starts)
	for instant := first; instant < last && len(z.Changes) == 0; instant += secondsPerDay {
		if offsetAt(instant) != z.Offset {
			return time.Unix(instant, 0).UTC(), true
		}
	}
	return time.Time{}, false
}

// TestOraclesAreFresh fails if the schedules or the libraries changed without make cronvectors.
func TestOraclesAreFresh(t *testing.T) {
	const folder = "../../hack/cronvectors/"
	o := mustReadOracles(t)
	text, err := os.ReadFile(folder + "schedules.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
	if diff := cmp.Diff(want, o.Schedules); diff != "" {
		t.Errorf("Run make cronvectors; the schedules (-schedules.txt +file):\n%s", diff)
	}
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	text, err = os.ReadFile(folder + "package.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	got := maps.Clone(o.Versions)
	delete(got, "tz")
	if diff := cmp.Diff(manifest.Dependencies, got); diff != "" {
		t.Errorf("Run make cronvectors; the versions (-package.json +file):\n%s", diff)
	}
	if len(o.Schedules) < 200 || len(o.Zones) < 10 {
		t.Errorf("The file has %d schedules in %d zones, want 200 in 10 at least", len(o.Schedules), len(o.Zones))
	}
}
