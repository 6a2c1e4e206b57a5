// Command citest summarizes the output of `go test -json`: one line per package, the whole output of
// failed and skipped tests, and at the end the tests that took a minute or more, and the last
// messages of each test that failed. It exits with 1 if a test failed, was skipped or did not
// finish, or if no test ran: otherwise nobody would notice a test that CI always skips.
//
// A test that has failed is repeated once, alone. If it passes then, it is flaky: citest appends it to the file
// named by $CITEST_FLAKY, and exits with 3. The arguments are the flags of go test that select all tests of a package.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds, when a test has ended
	Output  string
	// FailedBuild is the package that did not compile.
	FailedBuild string
}

// test names one test of one package; name is empty for the package itself.
type test struct{ pkg, name string }

// result counts tests by their result. Subtests count as tests.
type result struct {
	passed, failed, skipped int
	// unfinished are the tests that were started but did not end.
	unfinished int
	// messages are the last messages of the tests that failed or did not finish.
	messages string
	// slow has a line for each test that took slowSeconds or more, without subtests.
	slow []string
	// wrong are the tests that failed, without subtests, and the packages that did so in another way, by their first message.
	wrong map[test]string
	// crashed are the packages with a panic, after which no test runs.
	crashed map[string]bool
	// broken means that a package did not compile.
	broken bool
}

// message matches what a test logs, of one line or more. It leaves out the commands that a test ran,
// which begin with "$ ", and the logs of programs.
var message = regexp.MustCompile(`(?m)^ +\w+\.go:\d+: [^$].*\n(?: {8,}[^{\n].*\n)*`)

const (
	// lastMessages is the number of messages that are repeated for each test: an error often has others after it.
	lastMessages = 5
	// messageLength is the number of bytes that are repeated of each message, such as one with a long difference.
	messageLength = 2000
	slowSeconds   = 60
)

func main() {
	isFlaky, err := run(strings.Join(os.Args[1:], " "))
	if err != nil {
		fmt.Fprintf(os.Stderr, "citest: %v\n", err)
		os.Exit(1)
	}
	if isFlaky {
		os.Exit(flakyStatus)
	}
}

// flakyStatus is the exit status if all tests that have failed passed when they were repeated.
const flakyStatus = 3

// run summarizes standard input, and repeats the tests that have failed. all selects all tests of a package.
func run(all string) (isFlaky bool, err error) {
	got, err := filter(os.Stdin, os.Stdout)
	if err != nil {
		return false, err
	}
	slices.Sort(got.slow)
	slices.Reverse(got.slow)
	fmt.Print(strings.Join(got.slow, ""), got.messages)
	fmt.Printf("citest: %d passed, %d failed, %d skipped, %d unfinished\n", got.passed, got.failed, got.skipped, got.unfinished)
	if got.good() {
		return false, nil
	}
	repeats, err := got.repeats()
	if err != nil {
		return false, err
	}
	for _, t := range repeats {
		if err := repeat(t, all); err != nil {
			return false, err
		}
		if err := report(os.Getenv("CITEST_FLAKY"), flaky(t, got.wrong[t])); err != nil {
			return false, err
		}
	}
	return true, nil
}

// good reports whether tests ran and all of them passed.
func (r result) good() bool {
	return r.passed > 0 && r.failed == 0 && r.skipped == 0 && r.unfinished == 0
}

// filter copies the lines about packages from in to out, with the output of tests that failed, were
// skipped or did not finish. It copies lines that are not JSON: they come from a compiler or from
// the program that runs go test.
func filter(in io.Reader, out io.Writer) (result, error) {
	counted := result{wrong: map[test]string{}, crashed: map[string]bool{}}
	running := map[test]*strings.Builder{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			counted.line(line, running, out)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return counted, fmt.Errorf("read the output of go test: %w", err)
		}
	}
	for t, output := range running {
		counted.unfinished++
		counted.crashed[t.pkg] = true
		counted.report(out, "UNFINISHED", t, output)
	}
	return counted, nil
}

// line processes a line of input. running has the output so far of every running test.
func (r *result) line(line string, running map[test]*strings.Builder, out io.Writer) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		write(out, line)
		return
	}
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		write(out, e.Output)
	case t.name == "" && e.Action == "output" && e.Output != "PASS\n":
		r.watch(t, e.Output)
		write(out, e.Output)
	case t.name == "" && e.Action == "fail":
		r.failed++
		r.broken = r.broken || e.FailedBuild != ""
		r.remember(t, "")
	case t.name == "":
	case e.Action == "run":
		running[t] = &strings.Builder{}
	case e.Action == "output" && running[t] != nil:
		r.watch(t, e.Output)
		running[t].WriteString(e.Output)
	case e.Action == "pass":
		r.passed++
		if e.Elapsed >= slowSeconds && !strings.Contains(t.name, "/") {
			r.slow = append(r.slow, fmt.Sprintf("%5.0f s  %s %s\n", e.Elapsed, t.pkg, t.name))
		}
		delete(running, t)
	case e.Action == "fail":
		r.failed++
		r.report(out, "FAILED", t, running[t])
		delete(running, t)
	case e.Action == "skip":
		r.skipped++
		r.report(out, "SKIPPED", t, running[t])
		delete(running, t)
	}
}

// report writes the output of a test and keeps its last messages.
func (r *result) report(out io.Writer, how string, t test, output *strings.Builder) {
	title := fmt.Sprintf("%s %s %s\n", how, t.pkg, t.name)
	write(out, title)
	if output == nil {
		r.remember(t, "")
		return
	}
	write(out, output.String())
	said := message.FindAllString(output.String(), -1)
	r.messages += title
	first := ""
	if len(said) > 0 {
		first = said[0]
	}
	r.remember(t, first)
	for _, text := range said[max(0, len(said)-lastMessages):] {
		r.messages += text[:min(len(text), messageLength)]
	}
}

// write ignores errors: a reader that is gone does not need the rest.
func write(out io.Writer, text string) {
	_, _ = io.WriteString(out, text)
}
