package crontab

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Heat is a table of the runs in each hour of a day, for a picture or a text.
type Heat struct {
	Days []HeatDay
	// Most is the largest number of runs in an hour.
	Most int
	// Weeks means that each row has a week, and the busiest of its seven days in each hour.
	Weeks bool
}

// HeatDay has the runs in each hour of a day.
type HeatDay struct {
	Date  time.Time
	Hours [24]int
}

// NewHeat returns the table of a timeline in a time zone, with a row for each day or week. Runs in an hour that the clocks repeat are in one cell.
func NewHeat(found Timeline, zone *time.Location, weeks bool) Heat {
	h := Heat{Weeks: weeks}
	counted := map[string]*HeatDay{}
	for i, runs := range found.Hours {
		at := found.From.Add(time.Duration(i) * time.Hour).In(zone)
		date := at.Format(time.DateOnly)
		if counted[date] == nil {
			counted[date] = &HeatDay{Date: at}
		}
		counted[date].Hours[at.Hour()] += runs
	}
	for _, d := range counted {
		h.Days = append(h.Days, *d)
		h.Most = max(h.Most, slices.Max(d.Hours[:]))
	}
	slices.SortFunc(h.Days, func(a, b HeatDay) int { return a.Date.Compare(b.Date) })
	if !weeks {
		return h
	}
	var rows []HeatDay
	for i, d := range h.Days {
		if i%7 == 0 {
			rows = append(rows, HeatDay{Date: d.Date})
		}
		row := &rows[len(rows)-1]
		for hour, runs := range d.Hours {
			row.Hours[hour] = max(row.Hours[hour], runs)
		}
	}
	h.Days = rows
	return h
}

// colors are those of a picture.
const colors = "<style>rect{fill:#fff}text{fill:#222}g rect{fill:#1a5fb4}" +
	"@media(prefers-color-scheme:dark){rect{fill:#1a1e24}text{fill:#e4e8ee}g rect{fill:#5c9ded}}</style>\n"

// wideDays is up to how many days the cells of a picture have room for their numbers.
const wideDays = 14

// WriteSVG writes the runs of each hour as a picture, a column for each day of a time zone.
func (t Timeline) WriteSVG(out io.Writer, zone *time.Location) error {
	h := NewHeat(t, zone, false)
	const height, left, top = 14, 40, 24
	width, step, darkest, layout, wide := 12, 14, 1.0, time.DateOnly, len(h.Days) <= wideDays
	if wide {
		width, step, darkest, layout = 72, 1, 0.6, "Mon 01-02"
	}
	size := fmt.Sprintf(`width="%d" height="%d"`, max(left+len(h.Days)*width+8, 320), top+24*height+24)
	var text strings.Builder
	fmt.Fprintf(&text, `<svg xmlns="http://www.w3.org/2000/svg" %s font-family="sans-serif" font-size="10">`+"\n", size)
	text.WriteString(colors)
	fmt.Fprintf(&text, `<rect width="100%%" height="100%%"/><text x="%d" y="14">CronTabs: %d, runs: %d, at most %d an hour (%s)</text>`+"\n", left, t.CronTabs, t.Runs, h.Most, zone)
	for hour := 0; hour < 24; hour += 3 {
		fmt.Fprintf(&text, `<text x="2" y="%d">%02d:00</text>`+"\n", top+hour*height+10, hour)
	}
	text.WriteString("<g>\n")
	for i, d := range h.Days {
		x := left + i*width
		if i%step == 0 {
			fmt.Fprintf(&text, `<text x="%d" y="%d">%s</text>`+"\n", x, top+24*height+14, d.Date.Format(layout))
		}
		for hour, runs := range d.Hours {
			if runs == 0 {
				continue
			}
			y := top + hour*height
			fmt.Fprintf(&text, `<rect x="%d" y="%d" width="%d" height="%d" fill-opacity="%.2f"><title>%s %02d:00: %d runs</title></rect>`+"\n",
				x, y, width-1, height-1, 0.15+(darkest-0.15)*float64(runs)/float64(h.Most), d.Date.Format("Mon 2006-01-02"), hour, runs)
			if wide {
				fmt.Fprintf(&text, `<text x="%d" y="%d">%d</text>`+"\n", x+4, y+10, runs)
			}
		}
	}
	text.WriteString("</g></svg>\n")
	_, err := io.WriteString(out, text.String())
	return err
}
