package console

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/keelson-dev/keelson/docs"
)

// remedy is what the documentation says about a reason of a condition.
type remedy struct {
	Plural    string `json:"plural"` // of the kind
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	Text      string `json:"text"`
	// Page is where it is said, such as docs/foo.md#ready.
	Page string `json:"page"`
}

// reasonTables are the sections with a table of reasons, and their kinds.
var reasonTables = []struct{ file, heading, plural string }{
	{"virtualmachine-conditions.md", "Conditions", "virtualmachines"},
	{"disks.md", "When a change does not complete", "virtualmachines"},
	{"virtual-disks.md", "Conditions", "virtualdisks"},
	{"images.md", "Conditions", "virtualmachineimages"},
	{"snapshots.md", "Conditions", "virtualmachinesnapshots"},
	{"virtualmachinesets.md", "Conditions", "virtualmachinesets"},
	{"crontab.md", "Conditions", "crontabs"},
	{"cluster.md", "Conditions", "clusters"},
	{"cluster-snapshots.md", "Conditions", "clustersnapshots"},
	{"foo.md", "Ready", "foos"},
	{"sampleresource.md", "Ready", "sampleresources"},
}

const meaningColumn = "meaning and remedy"

// readRemedies reads the tables of the documentation.
func readRemedies() ([]remedy, error) {
	var all []remedy
	for _, table := range reasonTables {
		page, err := docs.Pages.ReadFile(table.file)
		if err != nil {
			return nil, fmt.Errorf("read the documentation: %w", err)
		}
		_, section, found := strings.Cut("\n"+string(page), "\n## "+table.heading+"\n")
		if !found {
			return nil, fmt.Errorf("docs/%s has no section %q", table.file, table.heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		rows := remediesIn(section)
		if len(rows) == 0 {
			return nil, fmt.Errorf("docs/%s has no table of reasons in the section %q", table.file, table.heading)
		}
		for _, row := range rows {
			row.Plural, row.Page = table.plural, "docs/"+table.file+"#"+strings.ReplaceAll(strings.ToLower(table.heading), " ", "-")
			all = append(all, row)
		}
	}
	return all, nil
}

// remediesIn reads the tables of a section whose last column has the meaning. The condition is a column of the table, or the
// title of its first column, or Ready. If that column has the status of the condition, True needs no remedy.
func remediesIn(section string) []remedy {
	var all []remedy
	var head []string
	condition := ""
	for line := range strings.Lines(section) {
		cells := cellsOf(line)
		switch {
		case cells == nil:
			head = nil
		case head == nil:
			head, condition = cells, "Ready"
			if first := cells[0]; first != "status" && first != "reason" {
				condition = first
			}
		case head[len(head)-1] == meaningColumn && len(cells) == len(head) && !strings.HasPrefix(cells[0], "---") && cells[0] != "True":
			if head[0] == "condition" && cells[0] != "" {
				condition = cells[0]
			}
			all = append(all, remediesOf(condition, cells[len(cells)-2], cells[len(cells)-1])...)
		}
	}
	return all
}

// cellsOf returns the cells of a line of a table; nil for another line.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

var (
	reasonName = regexp.MustCompile("`([A-Za-z]+)`")
	markdown   = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
)

// remediesOf returns one remedy for each condition and reason of a row.
func remediesOf(conditions, reasons, text string) []remedy {
	text = markdown.ReplaceAllStringFunc(text, func(link string) string {
		m := markdown.FindStringSubmatch(link)
		if strings.HasPrefix(m[2], "#") {
			return m[1]
		}
		return m[1] + " (docs/" + m[2] + ")"
	})
	var all []remedy
	for condition := range strings.SplitSeq(conditions, ", ") {
		for _, m := range reasonName.FindAllStringSubmatch(reasons, -1) {
			all = append(all, remedy{Condition: condition, Reason: m[1], Text: text})
		}
	}
	return all
}

// remedies serves what the documentation says about the reasons of conditions.
func (c *Console) remedies(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, c.documented)
}
