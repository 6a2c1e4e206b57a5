package rke

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/process"
)

// The log messages of a successful run. Exit code 0 is not sufficient: rke also exits with 0 if it has done nothing.
const (
	saysUp      = "Finished building Kubernetes cluster successfully"
	saysRemoved = "Cluster removed successfully"
)

// entry is a line of the log of rke.
type entry struct{ level, message string }

// logLine matches the level and the message of a line such as
//
//	time="2024-05-01T10:00:00Z" level=info msg="[etcd] Building up etcd plane.."
var logLine = regexp.MustCompile(`level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// parseLog returns the entries of a log. A line in another format is a message without a level.
func parseLog(text string) []entry {
	var entries []entry
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		e := entry{message: line}
		if found := logLine.FindStringSubmatch(line); found != nil {
			e.level, e.message = found[1], found[2]
			if unquoted, err := strconv.Unquote(found[2]); err == nil {
				e.message = unquoted
			}
		}
		e.message = secrecy.Scrub(e.message)
		entries = append(entries, e)
	}
	return entries
}

// progress returns the last message, which is the current step of rke.
func progress(text string) string {
	entries := parseLog(text)
	for i := len(entries) - 1; i >= 0; i-- {
		if strings.HasPrefix(entries[i].message, "[") {
			return entries[i].message
		}
	}
	if len(entries) > 0 {
		return entries[len(entries)-1].message
	}
	return "rke was started"
}

// outcome is the result of a run. A run in progress is neither ok nor failed.
type outcome struct {
	ok      bool
	failure string   // in words, if it is over and not ok
	notes   []string // warnings for the user although it is ok
}

// shownLines is the number of last log lines in the message about a failed run.
const shownLines = 5

// outcomeOf returns the outcome of a run.
func outcomeOf(last run, status process.Status) outcome {
	entries := parseLog(status.LogTail)
	command := "rke " + last.Command
	switch {
	case status.State == process.Running || status.State == process.Starting:
		return outcome{}
	case last.Limit != "":
		return outcome{failure: fmt.Sprintf("%s was ended because it took longer than %s; it was at: %s", command, last.Limit, progress(status.LogTail))}
	case status.State == process.Lost:
		return outcome{failure: command + " has ended with an unknown result: the host was restarted, or its records were removed"}
	case status.Signal != "":
		return outcome{failure: fmt.Sprintf("%s was ended by %s; it was at: %s", command, status.Signal, progress(status.LogTail))}
	case status.ExitCode != 0:
		return outcome{failure: fmt.Sprintf("%s has failed with exit code %d: %s", command, status.ExitCode, failureIn(entries))}
	}
	says := saysUp
	if last.Command == commandRemove {
		says = saysRemoved
	}
	done, notes := false, []string(nil)
	for _, e := range entries {
		done = done || strings.Contains(e.message, says)
		if last.Command == commandRemove && e.level == "warning" {
			notes = append(notes, e.message)
		}
	}
	if !done {
		return outcome{failure: fmt.Sprintf("%s has ended with exit code 0, but never said %q; its last words: %s", command, says, lastLines(entries))}
	}
	if len(notes) > 0 {
		notes = []string{"rke could not do everything, so that hosts may not be clean: " + strings.Join(notes, "; ")}
	}
	return outcome{ok: true, notes: notes}
}

// failureIn returns the fatal message of a log and the lines before it.
func failureIn(entries []entry) string {
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].level != "fatal" {
			continue
		}
		if before := lastLines(entries[:i]); before != "" {
			return entries[i].message + ". Before that: " + before
		}
		return entries[i].message
	}
	if len(entries) == 0 {
		return "it has said nothing"
	}
	return "its last words: " + lastLines(entries)
}

func lastLines(entries []entry) string {
	entries = entries[max(0, len(entries)-shownLines):]
	words := make([]string, 0, len(entries))
	for _, e := range entries {
		words = append(words, e.message)
	}
	return strings.Join(words, " | ")
}
