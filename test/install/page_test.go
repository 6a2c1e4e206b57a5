package install

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/files"
)

// Sections of docs/install.md and docs/install-host.md with commands.
const (
	imageSection      = "The images"
	kubectlSection    = "With kubectl"
	helmSection       = "With Helm"
	hostSection       = "For machines and clusters on a host"
	namespacesSection = "In some namespaces only"
)

// Sections of docs/operations.md, docs/backup.md and docs/upgrade.md with commands. Those of docs/uninstall.md have the names of
// the sections of docs/install.md.
const (
	admissionSection = "Admission"
	etcdSection      = "The size of etcd"
	instanceSection  = "An instance of keelson up"
	objectsSection   = "Objects in a cluster"
	upgradeSection   = "A manager outside of a cluster"
)

// Sections of docs/metrics.md and docs/runbooks.md with commands; the first is the text before all
// sections.
const (
	metricsSection  = "# Metrics and traces"
	runbooksSection = "# Runbooks"
	machinesSection = "VirtualMachine"
)

// Pages whose commands the tests run.
const (
	installPage    = "install.md"
	hostPage       = "install-host.md"
	podsPage       = "install-pods.md"
	dockerPage     = "install-docker.md"
	operationsPage = "operations.md"
	backupPage     = "backup.md"
	upgradePage    = "upgrade.md"
	uninstallPage  = "uninstall.md"
	metricsPage    = "metrics.md"
	runbooksPage   = "runbooks.md"
)

// TestEveryCommandOfThePages compares the command blocks of the pages with those that tests run:
// TestLongImage, TestLongKustomize, TestLongHelm, TestLongManagerInSomeNamespaces,
// TestLongBackupAndRestore, TestLongWatchTheManager, TestLongFullEtcd of the command status and
// TestLongBackup of test/e2e/life.
func TestEveryCommandOfThePages(t *testing.T) {
	for page, want := range map[string]map[string]int{
		installPage:    {imageSection: 2, kubectlSection: 1, helmSection: 3},
		hostPage:       {hostSection: 3, namespacesSection: 2},
		operationsPage: {admissionSection: 1, etcdSection: 1},
		backupPage:     {instanceSection: 2, objectsSection: 2},
		upgradePage:    {upgradeSection: 1},
		uninstallPage:  {kubectlSection: 1, helmSection: 1},
		metricsPage:    {metricsSection: 2},
		runbooksPage:   {runbooksSection: 1, machinesSection: 1},
	} {
		got := map[string]int{}
		for section, blocks := range commandsOf(t, page) {
			got[section] = len(blocks)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("command blocks in the tests and in docs/%s (-tests +page):\n%s", page, diff)
		}
	}
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	return files.Read(t, "../../docs/"+page)
}

// commandsOf returns the command blocks of a page by section.
func commandsOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for section := range strings.SplitSeq(readPage(t, page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
			all[title] = append(all[title], block[1])
		}
	}
	return all
}

// commands returns a command block of a section of a page.
func commands(t *testing.T, page, section string, i int) string {
	t.Helper()
	blocks := commandsOf(t, page)[section]
	if i >= len(blocks) {
		t.Fatalf("docs/%s has %d command blocks in %q", page, len(blocks), section)
	}
	return blocks[i]
}

// managerOf returns the manager command of a block of docs/install-host.md, with another kubeconfig.
func managerOf(t *testing.T, section string, i int, kubeconfig string) []string {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(commands(t, hostPage, section, i), "\\\n", " "))
	at := slices.Index(words, "--kubeconfig")
	if !slices.Equal(words[:2], []string{"keelson", "manager"}) || at < 0 {
		t.Fatalf("%q is not a manager with a kubeconfig", words)
	}
	words[at+1] = kubeconfig
	return words
}

// checkout is a clean copy of this repository to follow docs/install.md in.
type checkout struct {
	dir string
	env []string
}

// newCheckout copies the repository. The Kubernetes components, which take minutes to build, come
// from bin/. variables are added to HOME, PATH and the environment of the go command.
func newCheckout(t *testing.T, variables ...string) checkout {
	t.Helper()
	c := checkout{dir: t.TempDir(), env: slices.Clone(variables)}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v\n%s", err, stderrOf(err))
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		c.copy(t, file)
	}
	if err := os.Mkdir(filepath.Join(c.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"keelson-kube", "kubectl"} {
		if err := os.Symlink(binary(t, program), filepath.Join(c.dir, "bin", program)); err != nil {
			t.Fatal(err)
		}
	}
	path := t.TempDir()
	if err := os.Symlink(tool(t, "go.helm.mod", "helm"), filepath.Join(path, "helm")); err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, "HOME="+t.TempDir(), "PATH="+path+":"+filepath.Dir(binary(t, "keelson"))+":"+os.Getenv("PATH"))
	for _, variable := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", variable).Output()
		if err != nil {
			t.Fatal(err)
		}
		c.env = append(c.env, variable+"="+strings.TrimSpace(string(value)))
	}
	return c
}

// copy copies a file with an old timestamp, so that built files are newer. It skips a deleted file.
func (c checkout) copy(t *testing.T, file string) {
	t.Helper()
	source, target := filepath.Join("..", "..", file), filepath.Join(c.dir, file)
	info, err := os.Stat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(source)
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, raw, info.Mode().Perm()))
	}
	if err == nil {
		err = os.Chtimes(target, time.Time{}, time.Unix(0, 0))
	}
	if err != nil {
		t.Fatalf("copy the repository: %v", err)
	}
}

// types runs a command block of a page about the installation and returns its output.
func (c checkout) types(t *testing.T, page, section string, i int) string {
	t.Helper()
	return typed(t, c.dir, c.env, commands(t, page, section, i))
}

// typed runs a command block and returns its output.
func typed(t *testing.T, dir string, env []string, block string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-eux")
	cmd.Stdin = strings.NewReader(block)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%v in\n%s", err, block)
	}
	return string(out)
}

// write writes a file from a page about the installation.
func (c checkout) write(t *testing.T, page, file string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(documented(t, page, file)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// binary returns the path of a program in bin/.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := env.Binary(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// documented returns the block of a page that begins with a comment with that file name.
func documented(t *testing.T, page, file string) string {
	t.Helper()
	match := regexp.MustCompile("(?s)```[a-z]+\n# " + regexp.QuoteMeta(file) + "\n(.*?)```").FindStringSubmatch(readPage(t, page))
	if match == nil {
		t.Fatalf("docs/%s does not have %s", page, file)
	}
	return match[1]
}

// overlayIn writes a kustomization next to a link to the base, and returns its directory.
func overlayIn(t *testing.T, kustomization string) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"config", "api"} {
		source, err := filepath.Abs("../../" + folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(root, "keelson", folder), os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, "mine")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
