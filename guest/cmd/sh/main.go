// Command sh is the guest's shell: the language of POSIX and most of Bash's, from
// mvdan.cc/sh, with the usual ways to call it and a line editor on terminals.
//
//	sh                        read commands from the terminal or the standard input
//	sh -c LINE [NAME [ARG]]   run a line
//	sh FILE [ARG]             run a script
//
// -e, -u, -x and the like mean what they do in every shell; -l and -i mean nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// usageStatus is the exit status of a shell that was called or written wrongly.
const usageStatus = 2

func main() {
	call, err := parseArguments(os.Args[1:])
	if err == nil {
		err = call.run(os.Stdin, os.Stdout, os.Stderr)
	}
	var status interp.ExitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		fmt.Fprintf(os.Stderr, "sh: %v\n", err)
		os.Exit(usageStatus)
	}
}

// call is what the arguments ask for.
type call struct {
	// line is run if isLine, else the file if there is one, else the standard input.
	line   string
	isLine bool
	file   string
	// name is $0, parameters are $1 and so on, options are as for set.
	name       string
	parameters []string
	options    []string
}

func parseArguments(arguments []string) (call, error) {
	c := call{name: "sh"}
	readsInput := false
	for len(arguments) > 0 {
		argument := arguments[0]
		if argument == "--" {
			arguments = arguments[1:]
			break
		}
		if len(argument) < 2 || argument[0] != '-' {
			break
		}
		arguments = arguments[1:]
		for _, letter := range argument[1:] {
			switch letter {
			case 'c':
				c.isLine = true
			case 's':
				readsInput = true
			case 'l', 'i':
			case 'a', 'e', 'f', 'n', 'u', 'x':
				c.options = append(c.options, "-"+string(letter))
			default:
				return call{}, fmt.Errorf("unknown option -%c", letter)
			}
		}
	}
	if c.isLine {
		if len(arguments) == 0 {
			return call{}, errors.New("-c needs a line to run")
		}
		c.line, arguments = arguments[0], arguments[1:]
	}
	if len(arguments) > 0 && !readsInput {
		c.name, arguments = arguments[0], arguments[1:]
		if !c.isLine {
			c.file = c.name
		}
	}
	c.parameters = arguments
	return c, nil
}

func (c call) run(stdin *os.File, stdout, stderr io.Writer) error {
	runner, err := interp.New(
		interp.StdIO(stdin, stdout, stderr),
		interp.Params(append(append(c.options, "--"), c.parameters...)...),
	)
	if err != nil {
		return err
	}
	switch {
	case c.isLine:
		return c.runAll(runner, strings.NewReader(c.line))
	case c.file != "":
		script, err := os.Open(c.file)
		if err != nil {
			return err
		}
		defer script.Close()
		return c.runAll(runner, script)
	case term.IsTerminal(int(stdin.Fd())):
		return interact(runner, stdin, stdout)
	}
	return c.runAll(runner, stdin)
}

// runAll runs a program that is there as a whole.
func (c call) runAll(runner *interp.Runner, source io.Reader) error {
	program, err := syntax.NewParser().Parse(source, c.name)
	if err != nil {
		return err
	}
	return runner.Run(context.Background(), program)
}
