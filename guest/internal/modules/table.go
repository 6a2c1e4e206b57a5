// Package modules says which kernel module drives which device, and loads it. The
// table of the modules is made when the image is built, so that the guest needs
// neither depmod nor udev.
package modules

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path"
	"strings"
)

// Directory is where the modules and their table are in the guest.
const Directory = "/lib/modules"

// TableFile is the table's name in Directory.
const TableFile = "table"

// Module is a kernel module of the image.
type Module struct {
	// Name is the kernel's name of it, with underscores. Its file in Directory is
	// Name + ".ko".
	Name string
	// Depends names the modules that have to be loaded before, nearest first.
	Depends []string
	// Aliases are patterns, as of path.Match, of the devices that it drives.
	Aliases []string
}

// Table is what the image has. A module comes after those that it depends on.
type Table []Module

// Write writes the table as lines of words: name, dependencies joined by commas or
// "-", aliases.
func (t Table) Write(w io.Writer) error {
	for _, m := range t {
		depends := cmp.Or(strings.Join(m.Depends, ","), "-")
		if _, err := fmt.Fprintln(w, strings.Join(append([]string{m.Name, depends}, m.Aliases...), " ")); err != nil {
			return err
		}
	}
	return nil
}

// ReadTable reads what Write wrote.
func ReadTable(r io.Reader) (Table, error) {
	var table Table
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			return nil, fmt.Errorf("module table: line %d has no name and dependencies", len(table)+1)
		}
		m := Module{Name: words[0], Aliases: words[2:]}
		if len(m.Aliases) == 0 {
			m.Aliases = nil
		}
		if words[1] != "-" {
			m.Depends = strings.Split(words[1], ",")
		}
		table = append(table, m)
	}
	return table, lines.Err()
}

// Drivers names the modules that drive a device with this alias (the kernel's
// MODALIAS), in the order of the table.
func (t Table) Drivers(alias string) []string {
	var names []string
	for _, m := range t {
		for _, pattern := range m.Aliases {
			if matches(pattern, alias) {
				names = append(names, m.Name)
				break
			}
		}
	}
	return names
}

// matches looks at the kind of bus first, because nearly all patterns fail there.
func matches(pattern, alias string) bool {
	bus, _, _ := strings.Cut(pattern, ":")
	if !strings.ContainsAny(bus, "*?[") && !strings.HasPrefix(alias, bus+":") {
		return false
	}
	// An alias has no slash; a pattern that path.Match cannot read drives nothing.
	ok, err := path.Match(pattern, alias)
	return ok && err == nil
}

// LoadOrder returns the module and all that it needs, those needed first. Modules
// that the table does not have are left out: they are built into the kernel.
func (t Table) LoadOrder(name string) []string {
	byName := make(map[string]Module, len(t))
	for _, m := range t {
		byName[m.Name] = m
	}
	var order []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		m, there := byName[name]
		if !there || seen[name] {
			return
		}
		seen[name] = true
		for _, depends := range m.Depends {
			visit(depends)
		}
		order = append(order, name)
	}
	visit(name)
	return order
}
