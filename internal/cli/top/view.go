package top

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// gap is between two columns.
const gap = "  "

// view returns the screen: exactly height lines, none wider than width.
func (m *model) view() string {
	if m.width < 20 || m.height < sectionCount+4 {
		return ansi.Truncate("The terminal is too small", m.width, "")
	}
	lines := []string{m.heading()}
	counts := m.share(m.height - 3 - sectionCount)
	for section := range sectionCount {
		lines = append(lines, m.table(section, counts[section])...)
	}
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines, m.lastMessage(), ansi.NewStyle().Faint().Styled(ansi.Truncate(m.help(), m.width, "…")))
	return strings.Join(lines, "\n")
}

func (m *model) heading() string {
	left, right := "keelson top  "+clean(m.place), m.now.Format("2006-01-02 15:04:05 MST")
	space := m.width - ansi.StringWidth(left) - len(right)
	if space < 1 {
		left = ansi.Truncate(left, max(m.width-len(right)-1, 0), "…")
		space = max(m.width-ansi.StringWidth(left)-len(right), 0)
	}
	return ansi.NewStyle().Bold().Styled(ansi.Truncate(left+strings.Repeat(" ", space)+right, m.width, ""))
}

func (m *model) lastMessage() string {
	if m.deleting != nil {
		text := fmt.Sprintf("Delete %s %s? y: yes, any other key: no",
			strings.ToLower(kinds[m.focus].title), qualified(*m.deleting))
		return ansi.NewStyle().Bold().ForegroundColor(ansi.Red).Styled(ansi.Truncate(clean(text), m.width, "…"))
	}
	return ansi.Truncate(clean(m.message), m.width, "…")
}

// help returns the keys that the selected object has.
func (m *model) help() string {
	var parts []string
	if at := m.current(m.focus); at >= 0 {
		object := m.sections[m.focus].rows[at]
		for _, b := range kinds[m.focus].keys {
			if b.when == nil || b.when(object) {
				parts = append(parts, b.key+" "+b.label)
			}
		}
		if kinds[m.focus].resource != "" {
			parts = append(parts, "d delete")
		}
	}
	return strings.Join(append(parts, "↑↓ select", "tab section", "q quit"), gap)
}

// share divides lines among the sections: each gets a few, and the one with the cursor the rest.
func (m *model) share(lines int) [sectionCount]int {
	var want, got [sectionCount]int
	for section := range sectionCount {
		want[section] = max(1, len(m.sections[section].rows)) // one for a sentence
	}
	give := func(section, most int) {
		for got[section] < min(want[section], most) && lines > 0 {
			got[section]++
			lines--
		}
	}
	for section := range sectionCount {
		give(section, 1)
	}
	give(m.focus, max(lines/2, 3))
	for section := range sectionCount {
		give(section, 3)
	}
	give(m.focus, want[m.focus])
	for section := range sectionCount {
		give(section, want[section])
	}
	return got
}

// table returns the heading of a section and up to count rows of it, around the selected one.
func (m *model) table(section, count int) []string {
	kind, content := kinds[section], &m.sections[section]
	title := fmt.Sprintf("%s %d", kind.title, len(content.rows))
	bold := ansi.NewStyle().Bold()
	if content.problem != "" || len(content.rows) == 0 {
		text := content.problem
		if text == "" && content.loaded {
			text = "None"
		} else if text == "" {
			text = "Loading"
		}
		heading := bold.Styled(ansi.Truncate(m.mark(section)+kind.title, m.width, ""))
		if count == 0 {
			return []string{heading}
		}
		return []string{heading, ansi.NewStyle().Faint().Styled(ansi.Truncate("  "+clean(text), m.width, "…"))}
	}
	cells := [][]string{append([]string{title}, kind.columns...)}
	first, current := m.window(section, count), m.current(section)
	rows := content.rows[first:min(first+count, len(content.rows))]
	for _, r := range rows {
		cells = append(cells, append([]string{m.label(r)}, r.cells...))
	}
	texts := align(cells, m.width-len("> "))
	lines := []string{bold.Styled(m.mark(section) + texts[0])}
	for i, r := range rows {
		style := colours[r.state]
		line := "  " + texts[i+1]
		if section == m.focus && first+i == current {
			style, line = style.Reverse(true), "> "+texts[i+1]
		}
		lines = append(lines, style.Styled(line))
	}
	return lines
}

// mark shows where the cursor is, also without colours.
func (m *model) mark(section int) string {
	if section == m.focus {
		return "> "
	}
	return "  "
}

// window returns the first row that is shown, so that the selected one is among count rows.
func (m *model) window(section, count int) int {
	return max(0, min(m.current(section)-count/2, len(m.sections[section].rows)-count))
}

// colours are those of the states. The terminal shows those that it can.
var colours = map[state]ansi.Style{
	fine:    ansi.NewStyle().ForegroundColor(ansi.Green),
	busy:    ansi.NewStyle().ForegroundColor(ansi.Yellow),
	failing: ansi.NewStyle().ForegroundColor(ansi.Red),
	off:     ansi.NewStyle(),
}

// qualified returns the name of an object with its namespace.
func qualified(r row) string {
	if r.namespace == "" {
		return r.name
	}
	return r.namespace + "/" + r.name
}

// label returns the name of an object, with its namespace if objects of all of them are shown.
func (m *model) label(r row) string {
	if m.allNamespaces {
		return qualified(r)
	}
	return r.name
}

// align returns lines of cells in columns, none wider than width. The last column gets what the others leave.
func align(cells [][]string, width int) []string {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i := range line {
			line[i] = clean(line[i])
			widths[i] = max(widths[i], ansi.StringWidth(line[i]))
		}
	}
	widths[0] = min(widths[0], max(width/3, 10))
	lines := make([]string, len(cells))
	for at, line := range cells {
		var b strings.Builder
		for i, cell := range line {
			cell = ansi.Truncate(cell, widths[i], "…")
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)) + gap)
			}
		}
		lines[at] = strings.TrimRight(ansi.Truncate(b.String(), width, "…"), " ")
	}
	return lines
}

// clean returns a text without what a terminal interprets: messages of events are written by others.
func clean(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text))
}

// bar returns a bar for a part of a whole in percent.
func bar(percent float64) string {
	const length = 6
	full := max(0, min(int(percent/100*length+0.5), length))
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", length-full), percent)
}
