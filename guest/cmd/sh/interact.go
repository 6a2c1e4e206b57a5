package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// interact runs what is typed until the end of the input or exit.
func interact(runner *interp.Runner, terminal *os.File, stdout io.Writer) error {
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{interruptible{terminal}, stdout}, "")
	editor.AutoCompleteCallback = func(line string, position int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		return complete(line, position, runner.Dir)
	}
	text := ""
	for {
		line, err := readLine(editor, terminal, prompt(runner.Dir, text != ""))
		if errors.Is(err, io.EOF) {
			fmt.Fprint(stdout, "exit\n")
			return nil
		}
		if err != nil {
			return err
		}
		text += line + "\n"
		program, err := syntax.NewParser().Parse(strings.NewReader(text), "sh")
		if syntax.IsIncomplete(err) {
			continue
		}
		text = ""
		if err != nil {
			fmt.Fprintf(stdout, "sh: %v\n", err)
			continue
		}
		err = runTyped(runner, program, stdout)
		if runner.Exited() {
			return err
		}
	}
}

// runTyped runs a command until it ends or Control-C is typed. That also reaches the
// programs that it started; they have to end by themselves.
func runTyped(runner *interp.Runner, program *syntax.File, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	for _, statement := range program.Stmts {
		err = runner.Run(ctx, statement)
		if ctx.Err() != nil || runner.Exited() {
			return err
		}
		var status interp.ExitStatus
		if err != nil && !errors.As(err, &status) {
			fmt.Fprintf(stdout, "sh: %v\n", err)
		}
	}
	return err
}

// readLine lets a line be edited. Only meanwhile the terminal passes every key on,
// so that programs find it as they expect.
func readLine(editor *term.Terminal, terminal *os.File, prompt string) (string, error) {
	was, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(int(terminal.Fd()), was) }() // the terminal may be gone
	if width, height, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 && height > 0 {
		if err := editor.SetSize(width, height); err != nil {
			return "", err
		}
	}
	editor.SetPrompt(prompt)
	return editor.ReadLine()
}

func prompt(directory string, continued bool) string {
	if continued {
		return "> "
	}
	host, err := os.Hostname()
	if err != nil {
		host = "guest"
	}
	return fmt.Sprintf("root@%s:%s# ", host, directory)
}

// interruptible turns Control-C into Control-U: it clears the line. The line editor
// would take it for the end of the input.
type interruptible struct{ io.Reader }

func (r interruptible) Read(p []byte) (int, error) {
	const controlC, controlU = 0x03, 0x15
	n, err := r.Reader.Read(p)
	for i, c := range p[:n] {
		if c == controlC {
			p[i] = controlU
		}
	}
	return n, err
}

// complete completes the word before the cursor as far as it is certain: a program
// for the first word of a line, else a file.
func complete(line string, position int, directory string) (string, int, bool) {
	before := line[:position]
	start := strings.LastIndexAny(before, " \t;|&") + 1
	word := before[start:]
	pattern := word + "*"
	isProgram := strings.TrimSpace(before[:start]) == "" && !strings.Contains(word, "/")
	switch {
	case isProgram:
		pattern = filepath.Join("/bin", pattern)
	case !filepath.IsAbs(word):
		pattern = filepath.Join(directory, pattern)
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		return "", 0, false
	}
	slices.Sort(found)
	common := commonPrefix(found[0], found[len(found)-1])
	known := strings.TrimSuffix(pattern, "*")
	if len(common) < len(known) {
		return "", 0, false
	}
	addition := common[len(known):]
	if len(found) == 1 {
		addition += ending(found[0])
	}
	return before + addition + line[position:], position + len(addition), true
}

func commonPrefix(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return a[:i]
}

// ending is what comes after a name that is complete.
func ending(file string) string {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return "/"
	}
	return " "
}
