package cron

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/files"
)

var update = flag.Bool("update", false, "rewrite the tables of the pages; a number in a cell asks for that many runs")

const (
	schedulesPage = "../../docs/crontab-schedules.md"
	timesPage     = "../../docs/crontab-times.md"
	internalsPage = "../../docs/internals/schedules.md"
)

var (
	captionPattern = regexp.MustCompile(`^After (\d{4}-\d\d-\d\d \d\d:\d\d) in ([A-Za-z_/]+)(.*):$`)
	optionPattern  = regexp.MustCompile("`(\\w+): ([^`]+)`")
	codePattern    = regexp.MustCompile("`([^`]+)`")
	runPattern     = regexp.MustCompile(`\d\d:\d\d`)
)

// TestSchedulesPages verifies every table of runs and every table of errors in docs/crontab-schedules.md,
// docs/crontab-times.md and docs/internals/schedules.md. A table of runs follows a line "After
// TIME in ZONE, with `option: value`:" and has the column schedule, and one or more of runs, Once,
// Literal and starts.
func TestSchedulesPages(t *testing.T) {
	for page, rows := range map[string]int{schedulesPage: 6, timesPage: 7, internalsPage: 20} {
		t.Run(filepath.Base(page), func(t *testing.T) { checkSchedulesPage(t, page, rows) })
	}
}

// checkSchedulesPage verifies the tables of a page, which must have at least that many rows with
// runs or errors.
func checkSchedulesPage(t *testing.T, path string, rows int) {
	t.Helper()
	lines := strings.Split(files.Read(t, path), "\n")
	var caption string
	var columns []string
	checked := 0
	for n, line := range lines {
		switch {
		case captionPattern.MatchString(line):
			caption = line
		case strings.HasPrefix(line, "#"):
			caption = ""
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case columns == nil:
			columns = cellsOf(line)
		case !strings.HasPrefix(line, "|--"):
			want := pageRow(t, caption, columns, cellsOf(line))
			if want == nil {
				if runPattern.MatchString(line) && !slices.Contains(columns, "cronie") {
					t.Errorf("line %d has times and nothing to check them with: %s", n+1, line)
				}
				continue
			}
			checked++
			if wanted := "| " + strings.Join(want, " | ") + " |"; wanted != line {
				lines[n] = wanted
				if !*update {
					t.Errorf("line %d is\n%s, want\n%s", n+1, line, wanted)
				}
			}
		}
	}
	if checked < rows {
		t.Errorf("Found %d rows to check, want at least %d", checked, rows)
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// pageRow returns the expected cells of a row, or nil if there is nothing to compute.
func pageRow(t *testing.T, caption string, columns, cells []string) []string {
	t.Helper()
	if columns[0] != "schedule" || len(cells) != len(columns) {
		return nil
	}
	want := slices.Clone(cells)
	if slices.Contains(columns, "error") {
		_, err := Parse(strings.Trim(cells[0], "`"), "")
		if err == nil {
			t.Errorf("%s is not refused", cells[0])
		}
		want[1] = fmt.Sprint(err)
		return want
	}
	c := captionPattern.FindStringSubmatch(caption)
	if c == nil {
		t.Fatalf("%v stands below no line that says after which time and where", cells)
	}
	for i, column := range columns {
		rule := Once
		switch column {
		case "runs", "starts", "`Once`":
		case "`Literal`":
			rule = Literal
		default:
			continue
		}
		q := newPageQuestion(t, c[2], c[3])
		q.options.DaylightSaving = rule
		q.after = parsePageTime(t, c[1], q.options.Location)
		want[i] = q.answer(t, codePattern.FindAllString(cells[0], -1), cells[i], column == "starts")
	}
	return want
}

// pageQuestion is the parsed line above a table.
type pageQuestion struct {
	options Options
	after   time.Time
	key     string
	jitter  time.Duration
}

func newPageQuestion(t *testing.T, zone, options string) *pageQuestion {
	t.Helper()
	q := &pageQuestion{options: Options{Location: mustLoad(t, zone)}}
	for _, m := range optionPattern.FindAllStringSubmatch(options, -1) {
		switch name, value := m[1], m[2]; name {
		case "name":
			q.key = value
		case "creationTimestamp":
			q.options.Anchor = parsePageTime(t, value, time.UTC)
		case "notBefore":
			q.options.NotBefore = parsePageTime(t, value, time.UTC)
		case "notAfter":
			q.options.NotAfter = parsePageTime(t, value, time.UTC)
		case "jitter":
			var err error
			if q.jitter, err = time.ParseDuration(value); err != nil {
				t.Fatal(err)
			}
		case "excludeDates":
			for text := range strings.FieldsSeq(value) {
				dates, err := ParseDateRange(text)
				if err != nil {
					t.Fatal(err)
				}
				q.options.ExcludeDates = append(q.options.ExcludeDates, dates)
			}
		default:
			t.Fatalf("The page has an option %q that this test does not know", name)
		}
	}
	return q
}

func parsePageTime(t *testing.T, text string, location *time.Location) time.Time {
	t.Helper()
	layout := "2006-01-02 15:04:05"
	parsed, err := time.ParseInLocation(layout[:len(text)], text, location)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// answer returns the expected runs of a cell: as many as it has now. Nicknames in one cell are
// synonyms; other schedules in one cell belong to one CronTab.
func (q *pageQuestion) answer(t *testing.T, schedules []string, cell string, starts bool) string {
	t.Helper()
	for _, text := range schedules {
		s := mustParse(t, strings.Trim(text, "`"), q.key)
		if len(q.options.Schedules) > 0 && strings.HasPrefix(s.text, "@") {
			first := *q.options.Schedules[0]
			if first.text = s.text; first != *s {
				t.Errorf("%v do not mean the same", schedules)
			}
			continue
		}
		q.options.Schedules = append(q.options.Schedules, s)
	}
	n, err := strconv.Atoi(cell)
	if err != nil {
		n = max(1, strings.Count(cell, ",")+1)
	}
	p := mustNew(t, q.options)
	var texts []string
	date := ""
	for run, ok := p.Next(q.after); len(texts) < n; run, ok = p.Next(run) {
		if !ok {
			if len(texts) == 0 {
				return "never"
			}
			texts = append(texts, "no more")
			break
		}
		shown, layout := run, "15:04"
		if starts {
			shown = run.Add(Jitter(q.key, run, q.jitter))
			layout += ":05.000"
		} else if run.Second() != 0 {
			layout += ":05"
		}
		if q.options.Location != time.UTC {
			layout += " -07:00"
		}
		if today := shown.Format("Mon 2006-01-02 "); today != date {
			date, layout = today, "Mon 2006-01-02 "+layout
		}
		texts = append(texts, shown.Format(layout))
	}
	return strings.Join(texts, ", ")
}

// TestSchedulesPageKnowsTheOracles compares the section on other libraries with the file and the
// numbers of TestLongOracles.
func TestSchedulesPageKnowsTheOracles(t *testing.T) {
	page, o := files.Read(t, internalsPage), mustReadOracles(t)
	questions := 0
	for _, zone := range o.Zones {
		questions += len(zone.Starts) * len(o.Schedules)
	}
	for rule, agreement := range wantAgreement {
		answers := 0
		for _, n := range agreement {
			answers += n
		}
		if answers != questions {
			t.Errorf("%s: there are %d questions, and %d answers", rule, questions, answers)
		}
	}
	once := wantAgreement[Once]
	for _, sentence := range []string{
		fmt.Sprintf("%d schedules in %d zones", len(o.Schedules), len(o.Zones)),
		fmt.Sprintf("%d questions in all", questions),
		fmt.Sprintf("Keelson answers %d of them as both, %d only as croner, %d only as cron-parser, and %d as neither",
			once[[2]bool{true, true}], once[[2]bool{true, false}], once[[2]bool{false, true}], once[[2]bool{false, false}]),
		"croner " + o.Versions["croner"] + " |",
		"cron-parser " + o.Versions["cron-parser"] + " |",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "\n", " "), sentence) {
			t.Errorf("The page does not say %q", sentence)
		}
	}
}
