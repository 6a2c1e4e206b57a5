package top

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The sections, in the order of the screen.
const (
	machines = iota
	clusters
	cronTabs
	foos
	events
	sectionCount
)

// state is the state of an object, for its colour.
type state int

const (
	fine state = iota
	busy
	failing
	off
)

// row is an object.
type row struct {
	uid             types.UID
	namespace, name string
	cells           []string
	state           state
	// on tells that a machine or a cluster is to run, or that a schedule is not suspended.
	on bool
}

// section is the table of a kind.
type section struct {
	rows []row
	// problem takes the place of the table if it is not known: a sentence.
	problem string
	loaded  bool
}

// kind describes a section.
type kind struct {
	// title is the heading of the first column, command the command with the verbs, and resource what is deleted.
	title, command, resource string
	columns                  []string
	// keys are the verbs by their key.
	keys []binding
}

// binding is a key for a verb.
type binding struct {
	key, label string
	// words are the verb of the command of the kind. An interactive one gets the terminal.
	words       []string
	interactive bool
	// when tells whether the verb applies to a row.
	when func(row) bool
}

func isOn(r row) bool  { return r.on }
func isOff(r row) bool { return !r.on }

// kinds are the sections.
var kinds = [sectionCount]kind{
	machines: {
		"MACHINE", "vm", "virtualmachines", []string{"STATUS", "CPU", "MEMORY", "ADDRESS", "AGE", "MESSAGE"}, []binding{
			{key: "s", label: "start", words: []string{"start"}, when: isOff},
			{key: "x", label: "stop", words: []string{"stop"}, when: isOn},
			{key: "r", label: "restart", words: []string{"restart"}, when: isOn},
			{key: "c", label: "console", words: []string{"serial"}, interactive: true, when: isOn},
			{key: "l", label: "ssh", words: []string{"ssh"}, interactive: true, when: isOn},
		},
	},
	clusters: {"CLUSTER", "cluster", "clusters", []string{"STATUS", "VERSION", "ENDPOINT", "AGE", "MESSAGE"}, nil},
	cronTabs: {
		"CRONTAB", "crontab", "crontabs", []string{"STATUS", "SCHEDULE", "LAST", "NEXT RUN", "MESSAGE"}, []binding{
			{key: "t", label: "run now", words: []string{"trigger"}},
			{key: "x", label: "suspend", words: []string{"suspend"}, when: isOn},
			{key: "s", label: "resume", words: []string{"resume"}, when: isOff},
		},
	},
	foos:   {"FOO", "", "foos", []string{"STATUS", "AVAILABLE", "AGE", "MESSAGE"}, nil},
	events: {"EVENT", "", "", []string{"AGE", "TYPE", "REASON", "MESSAGE"}, nil},
}

// model is what the screen shows.
type model struct {
	// place is the API and the namespace.
	place         string
	allNamespaces bool
	sections      [sectionCount]section
	// focus is the section with the cursor, and selected the selected object of each section. Its index is used if it is
	// gone.
	focus    int
	selected [sectionCount]types.UID
	index    [sectionCount]int
	// deleting is the object whose deletion is to be confirmed.
	deleting *row
	// message is the result of the last verb.
	message       string
	width, height int
	now           time.Time
}

// action is what a key asks for.
type action struct {
	quit bool
	// words are a command of this program for an object.
	words       []string
	interactive bool
	// remove tells that the object is to be deleted.
	remove bool
	object row
}

// current returns the index of the selected row of a section; -1 if it has no rows.
func (m *model) current(section int) int {
	rows := m.sections[section].rows
	at := slices.IndexFunc(rows, func(r row) bool { return r.uid == m.selected[section] })
	if at < 0 {
		at = min(m.index[section], len(rows)-1)
	}
	return at
}

// choose selects a row of a section.
func (m *model) choose(section, at int) {
	m.focus = section
	rows := m.sections[section].rows
	if len(rows) == 0 {
		return
	}
	m.index[section] = max(0, min(at, len(rows)-1))
	m.selected[section] = rows[m.index[section]].uid
}

// show replaces the rows of a section.
func (m *model) show(section int, rows []row, problem string) {
	at := m.current(section)
	m.sections[section].rows, m.sections[section].problem, m.sections[section].loaded = rows, problem, true
	if now := m.current(section); now >= 0 {
		m.index[section], m.selected[section] = now, rows[now].uid
	} else {
		m.index[section] = max(at, 0)
	}
	// A confirmation is for an object that the user sees.
	if m.deleting != nil && m.focus == section && !slices.ContainsFunc(rows, func(r row) bool { return r.uid == m.deleting.uid }) {
		m.deleting, m.message = nil, m.deleting.name+" is deleted"
	}
}

// press handles a key.
func (m *model) press(key string) action {
	if key == "ctrl+c" {
		return action{quit: true}
	}
	if object := m.deleting; object != nil {
		m.deleting, m.message = nil, ""
		if key == "y" || key == "Y" {
			return action{remove: true, object: *object}
		}
		return action{}
	}
	at := m.current(m.focus)
	switch key {
	case "q", "esc":
		return action{quit: true}
	case "tab", "right":
		m.choose((m.focus+1)%sectionCount, m.current((m.focus+1)%sectionCount))
	case "shift+tab", "left":
		m.choose((m.focus+sectionCount-1)%sectionCount, m.current((m.focus+sectionCount-1)%sectionCount))
	case "down", "j":
		m.move(at+1, 1)
	case "up", "k":
		m.move(at-1, -1)
	case "pgdown":
		m.choose(m.focus, at+10)
	case "pgup":
		m.choose(m.focus, at-10)
	case "home", "g":
		m.choose(m.focus, 0)
	case "end", "G":
		m.choose(m.focus, len(m.sections[m.focus].rows)-1)
	default:
		return m.verb(key, at)
	}
	return action{}
}

// move selects a row, or goes on to the next section with rows in a direction.
func (m *model) move(at, direction int) {
	if at >= 0 && at < len(m.sections[m.focus].rows) {
		m.choose(m.focus, at)
		return
	}
	for section := m.focus + direction; section >= 0 && section < sectionCount; section += direction {
		if count := len(m.sections[section].rows); count > 0 {
			if direction < 0 {
				m.choose(section, count-1)
			} else {
				m.choose(section, 0)
			}
			return
		}
	}
}

// verb returns the action of a key for the selected object.
func (m *model) verb(key string, at int) action {
	kind := kinds[m.focus]
	if at < 0 {
		return action{}
	}
	object := m.sections[m.focus].rows[at]
	if key == "d" && kind.resource != "" {
		m.deleting, m.message = &object, ""
		return action{}
	}
	for _, b := range kind.keys {
		if b.key != key {
			continue
		}
		if b.when != nil && !b.when(object) {
			m.message = b.label + " does not apply: " + object.name + " is " + strings.ToLower(object.cells[0])
			return action{}
		}
		m.message = ""
		return action{words: append([]string{kind.command}, b.words...), interactive: b.interactive, object: object}
	}
	return action{}
}
