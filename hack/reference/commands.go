package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandPage returns the page with all commands, their flags and the help topics.
func commandPage(root *cobra.Command) string {
	var sections []string
	var text strings.Builder
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		if cmd != root {
			sections = append(sections, cmd.CommandPath())
			text.WriteString(command(cmd))
		}
		for _, below := range cmd.Commands() {
			add(below)
		}
	}
	add(root)
	return fmt.Sprintf("# Command line\n\n%s%s\n\nA command exits with 0 after success, 1 after a failure, and 2 if the command line is invalid. "+
		"`--help` shows the text below for a command.\n\n%s%s", generated, root.Long, contents(sections), text.String())
}

// command returns the section of a command or a help topic.
func command(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", cmd.CommandPath())
	long := strings.TrimRight(cmd.Long, "\n")
	switch {
	case cmd.IsAdditionalHelpTopicCommand():
		fmt.Fprintf(&b, "%s:\n\n```text\n%s\n```\n", cmd.Short, unindented(long))
		return b.String()
	case long == "":
		long = cmd.Short + "."
	}
	fmt.Fprintf(&b, "%s\n", long)
	if cmd.Runnable() {
		fmt.Fprintf(&b, "\n```text\n%s\n```\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\n```text\n%s\n```\n", unindented(cmd.Example))
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString("\n| flag | description | default |\n|---|---|---|\n")
		flags.VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Name != "help" {
				b.WriteString(flagRow(flag))
			}
		})
	}
	return b.String()
}

// flagRow returns the row of a flag.
func flagRow(flag *pflag.Flag) string {
	argument, usage := pflag.UnquoteUsage(flag)
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand + ", " + name
	}
	if argument != "" {
		name += " " + argument
	}
	value, place := strings.Trim(flag.DefValue, "[]"), ""
	// Some defaults depend on the directory of the program, which is another one here.
	if program, err := os.Executable(); err == nil && strings.HasPrefix(value, filepath.Dir(program)+"/") {
		value, place = strings.TrimPrefix(value, filepath.Dir(program)+"/"), " next to keelson"
	}
	if value == "false" {
		value = ""
	}
	if value != "" {
		value = "`" + value + "`" + place
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, cell(usage), value)
}

// unindented removes the indentation that cobra wants for examples.
func unindented(example string) string {
	lines := strings.Split(strings.Trim(example, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
