package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseArguments(t *testing.T) {
	tests := []struct {
		name      string
		arguments []string
		want      call
	}{
		{"nothing", nil, call{name: "sh"}},
		{"a login shell", []string{"-l"}, call{name: "sh", parameters: []string{}}},
		{"a line", []string{"-c", "ls"}, call{name: "sh", line: "ls", isLine: true, parameters: []string{}}},
		{"a line with options", []string{"-ec", "ls"},
			call{name: "sh", line: "ls", isLine: true, options: []string{"-e"}, parameters: []string{}}},
		{"a line with parameters", []string{"-c", "ls", "me", "a", "-b"},
			call{name: "me", line: "ls", isLine: true, parameters: []string{"a", "-b"}}},
		{"a script", []string{"-x", "f", "-a"},
			call{name: "f", file: "f", options: []string{"-x"}, parameters: []string{"-a"}}},
		{"parameters for the standard input", []string{"-s", "a"}, call{name: "sh", parameters: []string{"a"}}},
		{"a script that looks like an option", []string{"--", "-f"},
			call{name: "-f", file: "-f", parameters: []string{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseArguments(tt.arguments)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, wrong := range [][]string{{"-c"}, {"-q"}} {
		if _, err := parseArguments(wrong); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
}

func TestRun(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo script $1 $#\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		arguments []string
		want      string
	}{
		{"a line", []string{"-c", "echo $((1+1)); exit 0"}, "2\n"},
		{"parameters of a line", []string{"-c", "echo $1", "me", "hello"}, "hello\n"},
		{"a script with a parameter", []string{script, "one"}, "script one 1\n"},
		{"stops at the first failure", []string{"-c", "set -e; false; echo no"}, "exit status 1"},
		{"the status of the line", []string{"-c", "exit 7"}, "exit status 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseArguments(tt.arguments)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := c.run(os.Stdin, &out, &out); err != nil {
				out.WriteString(err.Error())
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"alpha", "alphabet", "beta/x"} {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ name, line, want string }{
		{"as far as it is certain", "cat al", "cat alpha"},
		{"a folder", "cat b", "cat beta/"},
		{"in a folder", "cat beta/", "cat beta/x "},
		{"a whole path", "cat " + directory + "/alphab", "cat " + directory + "/alphabet "},
		{"nothing fits", "cat z", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, _ := complete(tt.line, len(tt.line), directory)
			if got != tt.want {
				t.Errorf("completed to %q, want %q", got, tt.want)
			}
		})
	}
}
