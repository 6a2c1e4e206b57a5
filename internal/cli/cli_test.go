package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/cli/program"
	"github.com/keelson-dev/keelson/internal/manager"
)

// call runs a command line and returns its exit code and output.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Main(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestErrors(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere/kubeconfig")
	t.Setenv("KEELSON_KUBE", "/bin/sh") // any program works for commands that fail before they start it
	tests := []struct {
		name string
		args []string
		code int
		want string // the beginning of standard error
	}{
		{
			name: "a command that does not exist", args: []string{"mangler"}, code: program.ExitUsage,
			want: "error: there is no command \"mangler\"; did you mean manager?\n",
		},
		{
			name: "nothing like any command", args: []string{"xyzzy"}, code: program.ExitUsage,
			want: "error: there is no command \"xyzzy\"; see keelson --help\n",
		},
		{
			name: "a flag that does not exist", args: []string{"manager", "--frobnicate"}, code: program.ExitUsage,
			want: "error: unknown flag: --frobnicate; see keelson manager --help\n",
		},
		{
			name: "an invalid flag value", args: []string{"manager", "--threads=0"}, code: program.ExitUsage,
			want: "error: --threads=0: must be 1 or more\n",
		},
		{
			name: "a flag that cannot be parsed", args: []string{"manager", "--leader-elect=perhaps"}, code: program.ExitUsage,
			want: "error: invalid argument \"perhaps\" for \"--leader-elect\" flag: must be true or false; see keelson manager --help\n",
		},
		{
			name: "an unexpected argument", args: []string{"version", "please"}, code: program.ExitUsage,
			want: "error: keelson version takes no argument, but was given \"please\"\n",
		},
		{
			name: "no file for a backup", args: []string{"backup"}, code: program.ExitUsage,
			want: "error: keelson backup takes one FILE, the file to write; got 0\n",
		},
		{
			name: "a format that does not exist", args: []string{"version", "-o", "xml"}, code: program.ExitUsage,
			want: "error: --output=xml: must be text or json\n",
		},
		{
			name: "help for a command that does not exist", args: []string{"help", "dwon"}, code: program.ExitUsage,
			want: "error: there is no command \"dwon\"; did you mean down?\n",
		},
		{
			name: "completion of a shell that does not exist", args: []string{"completion", "tcsh"}, code: program.ExitUsage,
			want: "error: there is no command \"tcsh\"; did you mean bash or fish or zsh?\n",
		},
		{
			name: "completion of two shells", args: []string{"completion", "bash", "zsh"}, code: program.ExitUsage,
			want: "error: keelson completion bash takes no argument, but was given \"zsh\"\n",
		},
		{
			name: "an invalid number", args: []string{"up", "--nodes=two"}, code: program.ExitUsage,
			want: "error: invalid argument \"two\" for \"--nodes\" flag: must be a whole number; see keelson up --help\n",
		},
		{
			name: "too many nodes", args: []string{"up", "--nodes=1001"}, code: program.ExitUsage,
			want: "error: --nodes=1001: must be from 0 to 1000\n",
		},
		{
			name: "an empty data directory, as from an unset variable", args: []string{"down", "--delete-data", "--data-dir="}, code: program.ExitUsage,
			want: "error: invalid argument \"\" for \"--data-dir\" flag: must not be empty; see keelson down --help\n",
		},
		{
			name: "a controller that does not exist", args: []string{"up", "--controllers=fooo"}, code: program.ExitUsage,
			want: "error: --controllers=fooo: there is no controller \"fooo\"; there are " + strings.Join(manager.Names(), ", ") + "\n",
		},
		{
			name: "an unknown output format of status", args: []string{"status", "-o", "yaml"}, code: program.ExitUsage,
			want: "error: --output=yaml: must be text or json\n",
		},
		{
			name: "an impossible data directory", args: []string{"up", "--data-dir=/dev/null/data"}, code: program.ExitFailure,
			want: "error: create the data directory: mkdir /dev/null: not a directory; choose another with --data-dir\n",
		},
		{
			name: "a failing command", args: []string{"manager"}, code: program.ExitFailure,
			want: "error: read kubeconfig /nowhere/kubeconfig: ",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := call(t, tt.args...)
			if code != tt.code {
				t.Errorf("exit code: got %d, want %d", code, tt.code)
			}
			if stdout != "" {
				t.Errorf("standard output of a failed command: %q", stdout)
			}
			if !strings.HasPrefix(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("standard error: got %q, want one line that begins with %q", stderr, tt.want)
			}
		})
	}
}

// The error on an unsuitable host names what is missing.
func TestMissingPrerequisites(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{
			name: "no home directory", env: map[string]string{"HOME": "", "XDG_DATA_HOME": ""}, args: []string{"status"},
			want: "error: there is no home directory for the data ($HOME is not defined): set --data-dir\n",
		},
		{
			name: "no components", env: map[string]string{"KEELSON_KUBE": "", "PATH": "/nowhere"}, args: []string{"up", "--detach"},
			want: "nor in PATH: build it with `make build`, or set KEELSON_KUBE\n",
		},
		{
			name: "missing components", env: map[string]string{"KEELSON_KUBE": "/nowhere/keelson-kube"}, args: []string{"up"},
			want: "KEELSON_KUBE is not the path of a program (exec: \"/nowhere/keelson-kube\": stat /nowhere/keelson-kube: no such file or directory): correct or unset it\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			code, stdout, stderr := call(t, tt.args...)
			if code != program.ExitFailure || stdout != "" || !strings.HasSuffix(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit code %d, %q and %q, want one line that ends with %q", code, stdout, stderr, tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	code, bare, _ := call(t)
	if code != program.ExitOK {
		t.Errorf("exit code without a command: got %d, want %d", code, program.ExitOK)
	}
	_, help, _ := call(t, "--help")
	if diff := cmp.Diff(bare, help); diff != "" {
		t.Errorf("without a command and with --help (-bare +help):\n%s", diff)
	}
	for _, command := range []string{"up", "down", "status", "backup", "restore", "manager", "manifests", "version"} {
		if !strings.Contains(help, "\n  "+command+" ") {
			t.Errorf("the help has no %s:\n%s", command, help)
		}
	}
	for _, group := range []string{"Run Keelson:\n  backup ", "Use it:\n  cluster ", "Operate it in a cluster:\n  manager ", "Additional Commands:\n  completion "} {
		if !strings.Contains(help, "\n"+group) {
			t.Errorf("no group %q in the help:\n%s", group, help)
		}
	}
	for line := range strings.SplitSeq(help, "\n") {
		if len(line) > 100 {
			t.Errorf("a line of the help is wider than a terminal: %q", line)
		}
	}
}

// No word has two meanings: that of a command, and that of another one below it or above it. The words of verbs, which do the same to
// objects of different kinds, are the exceptions.
func TestNoHomonyms(t *testing.T) {
	top := map[string]bool{}
	for _, cmd := range New().Commands() {
		top[cmd.Name()] = true
	}
	same := map[string]string{"restore": "a verb", "logs": "a verb", "kubeconfig": "of a Cluster", "help": "of cobra", "completion": "of cobra"}
	for _, cmd := range New().Commands() {
		for _, below := range cmd.Commands() {
			if top[below.Name()] && same[below.Name()] == "" {
				t.Errorf("%s is a homonym", below.CommandPath())
			}
		}
		if top[cmd.Name()+"s"] {
			t.Errorf("%s and %[1]ss", cmd.Name())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"manager", "--version"}} {
		code, stdout, stderr := call(t, args...)
		if code != program.ExitOK || stderr != "" {
			t.Errorf("%v: got exit code %d and %q", args, code, stderr)
		}
		for _, line := range []string{"keelson    ", "go         go1.", "kubernetes ", "platform   "} {
			if !strings.Contains(stdout, line) {
				t.Errorf("%v: no line %q in:\n%s", args, line, stdout)
			}
		}
	}
}

func TestManifestsAreYAMLForEveryKind(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{name: "definitions", args: []string{"manifests", "crds"}, want: []string{"\n  name: foos.samplecontroller.k8s.io\n"}},
		{
			name: "roles", args: []string{"manifests", "rbac"},
			want: []string{"kind: ClusterRole\n", "\n  name: keelson-foo\n", "kind: Role\n", "\n  name: keelson-lease-keelson\n"},
		},
		{
			name: "bindings", args: []string{"manifests", "rbac", "--user=system:serviceaccount:ns:name", "--lease-lock-namespace=ns"},
			want: []string{"kind: ClusterRoleBinding\n", "kind: RoleBinding\n", "- kind: ServiceAccount\n  name: name\n  namespace: ns\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := call(t, tt.args...)
			if code != program.ExitOK || stderr != "" {
				t.Fatalf("got exit code %d and %q", code, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in:\n%s", want, stdout)
				}
			}
			if strings.Contains(stdout, "\nstatus:") {
				t.Errorf("a status that only a server fills in:\n%s", stdout)
			}
		})
	}
}

// The help topic about the environment has all variables of Keelson's own.
func TestEnvironment(t *testing.T) {
	_, help, _ := call(t, "help", "environment")
	variables := map[string]bool{}
	read := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("((?:KEELSON|XDG)_\w+)"\)`)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../testing/") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range read.FindAllStringSubmatch(string(source), -1) {
			variables[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(variables) < 4 {
		t.Errorf("only %d variables were found in the source", len(variables))
	}
	for variable := range variables {
		if !strings.Contains(help, "\n  "+variable+" ") && !strings.HasPrefix(help, "  "+variable+" ") {
			t.Errorf("the help does not name %s:\n%s", variable, help)
		}
	}
}
