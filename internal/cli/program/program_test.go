package program

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A program is called by its name, as a plugin of kubectl, or by kubectl for the completion of arguments.
func TestNames(t *testing.T) {
	for argv, want := range map[string]string{
		"/usr/bin/keelson vm list":              "keelson: vm list",
		"kubectl-keelson vm list":               "kubectl keelson: vm list",
		"kubectl-keelson.exe vm list":           "kubectl keelson: vm list",
		"kubectl_complete-keelson vm start x":   "kubectl keelson: __complete vm start x",
		"/bin/kubectl-vm list":                  "kubectl: vm list",
		"kubectl_complete-crontab trigger x":    "kubectl: __complete crontab trigger x",
		"another-name vm":                       "keelson: vm",
		"kubectl-cluster create demo --nodes=1": "kubectl: cluster create demo --nodes=1",
	} {
		name, args := nameAndArguments(strings.Fields(argv))
		if got := name + ": " + strings.Join(args, " "); got != want {
			t.Errorf("%s: %q, want %q", argv, got, want)
		}
	}
}

// Help and errors name commands as they are typed.
func TestCommandsAsTyped(t *testing.T) {
	newRoot := func() *cobra.Command {
		root := New("keelson", "The help.")
		vm := &cobra.Command{Use: "vm", Long: "See keelson vm, keelson up and kubectl keelson vm.", Example: "  keelson vm a b", RunE: func(*cobra.Command, []string) error {
			return errors.New("list them: keelson vm list; keelson uptime")
		}}
		vm.PersistentFlags().Bool("flag", false, "as keelson vm")
		root.AddCommand(vm, &cobra.Command{Use: "up", Run: func(*cobra.Command, []string) {}})
		return root
	}
	for program, want := range map[string][]string{
		"keelson":         {"See keelson vm, keelson up and kubectl keelson vm.", "  keelson vm a b", "as keelson vm", "list them: keelson vm list; keelson uptime"},
		"kubectl-keelson": {"See kubectl keelson vm, kubectl keelson up and kubectl keelson vm.", "  kubectl keelson vm a b", "as kubectl keelson vm", "list them: kubectl keelson vm list"},
		"kubectl-vm":      {"See kubectl vm, keelson up and kubectl keelson vm.", "  kubectl vm a b", "as kubectl vm", "list them: kubectl vm list; keelson uptime"},
	} {
		argv := []string{program}
		if program != "kubectl-vm" {
			argv = append(argv, "vm")
		}
		var output bytes.Buffer
		Run(t.Context(), newRoot, append(argv, "--help"), &output, &output)
		Run(t.Context(), newRoot, argv, &output, &output)
		for _, text := range want {
			if !strings.Contains(output.String(), text) {
				t.Errorf("%s: no %q in\n%s", program, text, output.String())
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	newRoot := func() *cobra.Command {
		root := New("keelson", "The help.")
		root.AddCommand(&cobra.Command{Use: "good", RunE: func(*cobra.Command, []string) error { return nil }})
		return root
	}
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"kubectl-keelson good":     {ExitOK, ""},
		"kubectl-keelson --bad":    {ExitUsage, "--bad"},
		"kubectl-keelson goof":     {ExitUsage, `there is no command "goof"; did you mean good?`},
		"kubectl-keelson help goo": {ExitUsage, `there is no command "goo"`},
	} {
		var stderr bytes.Buffer
		code := Run(t.Context(), newRoot, strings.Fields(line), &bytes.Buffer{}, &stderr)
		if code != want.code || !strings.Contains(stderr.String(), want.says) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", line, code, stderr.String(), want.code, want.says)
		}
	}
}
