package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// foreign are the flags of other programs that pages name without a command.
var foreign = []string{
	"as", "cascade", "kill-whom", "oidc-issuer-url", "permit-port-sharing", "shutdown-watch-termination-grace-period", "take-ownership",
}

var (
	namedFlag   = regexp.MustCompile("`--([a-z][a-z0-9-]*)")
	commandLine = regexp.MustCompile("\\bkeelson ([^`\n|;&#>()]*)")
)

// Pages name only flags that exist: by themselves those of any command, in a command line those of the command.
func TestPagesNameFlagsThatExist(t *testing.T) {
	root, known := New(), slices.Clone(foreign)
	visit(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, flag.Name) })
	})
	for path, text := range pages(t) {
		for _, match := range namedFlag.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, match[1]) {
				t.Errorf("%s: no command has --%s", path, match[1])
			}
		}
		for _, match := range commandLine.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
			words := strings.Fields(match[1])
			cmd, _, err := root.Find(words)
			if err != nil || cmd == root {
				continue // a sentence, or an argument of another command
			}
			for _, word := range words {
				if word == "--" {
					break
				}
				name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
				if strings.HasPrefix(word, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: %s has no flag --%s: keelson %s", path, cmd.CommandPath(), name, match[1])
				}
			}
		}
	}
}

func visit(cmd *cobra.Command, see func(*cobra.Command)) {
	see(cmd)
	for _, child := range cmd.Commands() {
		visit(child, see)
	}
}

// pages returns the texts for users and the files for their installations, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{"docs", "charts", "config", "examples"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".md", ".yaml", ".service", ".conf"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all["README.md"] = string(text)
	return all
}
