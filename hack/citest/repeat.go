package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// maxRepeats is the maximum number of tests that are repeated. If more fail, that is no accident.
const maxRepeats = 5

// panicked begins the output of a test program that has a panic or reached its time limit.
const panicked = "panic: "

// remember records that a test, or the test of a subtest, went wrong. The first message wins.
func (r *result) remember(t test, message string) {
	t.name, _, _ = strings.Cut(t.name, "/")
	r.wrong[t] = cmp.Or(r.wrong[t], strings.TrimSpace(message))
}

// watch looks for a panic in the output of a test or package.
func (r *result) watch(t test, output string) {
	if strings.HasPrefix(output, panicked) {
		r.crashed[t.pkg] = true
	}
}

// repeats returns the tests to repeat; without a name, all tests of a package. The error says why nothing is repeated.
func (r *result) repeats() ([]test, error) {
	switch {
	case r.skipped > 0:
		return nil, errors.New("a test was skipped: install what it needs, or correct why it is skipped")
	case r.broken:
		return nil, errors.New("a package does not compile")
	case r.passed == 0:
		return nil, errors.New("no test has passed")
	}
	alone := map[test]bool{}
	for t := range r.wrong {
		alone[t] = !r.crashed[t.pkg] && t.name != ""
	}
	var all []test
	for t := range r.wrong {
		hasTest := slices.ContainsFunc(slices.Collect(maps.Keys(r.wrong)), func(other test) bool { return other.pkg == t.pkg && alone[other] })
		if whole := (test{pkg: t.pkg}); alone[t] {
			all = append(all, t)
		} else if !hasTest && !slices.Contains(all, whole) {
			all = append(all, whole)
		}
	}
	if len(all) > maxRepeats {
		return nil, fmt.Errorf("%d tests have failed: none is repeated", len(all))
	}
	slices.SortFunc(all, func(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	return all, nil
}

// repeat runs a test again, alone. The error is that it has failed again.
func repeat(t test, all string) error {
	flags := all
	if t.name != "" {
		flags = "-run '^" + t.name + "$$'" // make reads $$ as $
	}
	fmt.Printf("citest: repeating %s %s\n", t.pkg, t.name)
	command := exec.Command("make", "--no-print-directory", "again", "PACKAGE="+t.pkg, "FLAGS="+flags)
	command.Stderr = os.Stderr
	output, _ := command.Output() // its result is in the output
	got, err := filter(bytes.NewReader(output), os.Stdout)
	if err != nil {
		return err
	}
	fmt.Print(got.messages)
	if !got.good() {
		return fmt.Errorf("%s %s has failed twice", t.pkg, t.name)
	}
	return nil
}

// flaky returns the line about a test that has passed when it was repeated.
func flaky(t test, message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return fmt.Sprintf("FLAKY %s: %s\n", strings.TrimSpace(t.pkg+" "+t.name), cmp.Or(line, "it did not finish"))
}

// report prints a line, and appends it to a file if there is one.
func report(path, line string) error {
	fmt.Print("citest: ", line)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line)
	return errors.Join(err, file.Close())
}
