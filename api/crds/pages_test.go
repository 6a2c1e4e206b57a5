package crds_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of contents of the pages")

// A page that is longer has a table of contents.
const longPage = 100

var (
	section  = regexp.MustCompile(`(?m)^## (.*)$`)
	contents = regexp.MustCompile(`(?m)^\*\*Contents:\*\* .*\n`)
)

// Long pages have a table of contents, and it is complete.
func TestContentsOfThePages(t *testing.T) {
	long := 0
	for _, path := range userPages(t) {
		page := read(t, path)
		if strings.Count(page, "\n") <= longPage && !contents.MatchString(page) {
			continue
		}
		long++
		var links []string
		for _, match := range section.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			links = append(links, "["+match[1]+"](#"+anchorOf(match[1])+")")
		}
		want := "**Contents:** " + strings.Join(links, " · ") + "\n"
		if contents.FindString(page) == want {
			continue
		}
		if !*update {
			t.Errorf("%s has no current table of contents: run go test ./api/crds -run %s -update", path, t.Name())
			continue
		}
		if contents.MatchString(page) {
			page = contents.ReplaceAllLiteralString(page, want)
		} else {
			parts := strings.SplitN(page, "\n\n", 3) // the title, the first paragraph, the rest
			page = parts[0] + "\n\n" + parts[1] + "\n\n" + want + "\n" + parts[2]
		}
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if long < 10 {
		t.Errorf("only %d long pages were found", long)
	}
}

// typedBy has the tests that run the commands of the pages, by page. A page without a test has a
// reason instead.
var typedBy = map[string]string{
	"access-api.md":                "TestAccessPage",
	"backup.md":                    "TestEveryCommandOfThePages",
	"ci.md":                        "TestLongCIPage",
	"cluster.md":                   "TestLongClusterPage",
	"cluster-access.md":            "TestLongClusterPage",
	"cluster-nodes.md":             "TestLongClusterPage",
	"cluster-snapshots.md":         "TestLongClusterPage",
	"cluster-stop.md":              "TestLongClusterPage",
	"cluster-upgrade.md":           "TestLongClusterPage",
	"crontab.md":                   "TestCronTabPage",
	"crontab-schedules.md":         "TestSchedulesPage",
	"disks.md":                     "TestLongDisksPage",
	"drivers.md":                   "TestLongDriversPage",
	"engines.md":                   "TestLongClusterPage",
	"fifty-machines.md":            "TestLongFiftyMachinesPage",
	"foo.md":                       "TestFooPage",
	"gitops.md":                    "TestLongGitOpsPage",
	"guest.md":                     "TestGuestPage",
	"images.md":                    "TestLongImagesPage",
	"install.md":                   "TestEveryCommandOfThePages",
	"install-host.md":              "TestEveryCommandOfThePages",
	"many-nodes.md":                "TestLongManyNodesPage",
	"metrics.md":                   "TestEveryCommandOfThePages",
	"monitoring.md":                "TestLongMonitoringPage",
	"node.md":                      "TestLongNodePage",
	"node-network.md":              "TestLongNodePage",
	"operations.md":                "TestEveryCommandOfThePages",
	"quickstart.md":                "TestLongQuickstart",
	"runbooks.md":                  "TestEveryCommandOfThePages",
	"running.md":                   "TestLongRunningPage",
	"sampleresource.md":            "TestSampleResourcePage",
	"security.md":                  "TestSecurityPage",
	"sleep.md":                     "TestSleepPage",
	"snapshots.md":                 "TestLongSnapshotsPage",
	"snapshots-fork.md":            "TestLongSnapshotsPage",
	"team.md":                      "TestLongTeamPage",
	"tutorial-clusters.md":         "TestLongTutorialClusters",
	"tutorial-machine.md":          "TestLongTutorialMachine",
	"tutorial-schedule.md":         "TestLongTutorialSchedule",
	"uninstall.md":                 "TestEveryCommandOfThePages",
	"upgrade.md":                   "TestEveryCommandOfThePages",
	"virtualmachine.md":            "TestVirtualMachinePage",
	"virtualmachine-conditions.md": "TestVirtualMachinePage",
	"virtual-disks.md":             "TestLongDisksPage",
	"virtual-networks.md":          "TestLongVirtualNetworksPage",
	"virtualmachinesets.md":        "TestLongVirtualMachineSetsPage",
}

// Every page for users has commands, and a test that runs them. Commands that no test can run are in
// blocks that begin with "sh notest: REASON".
func TestEveryPageHasCommands(t *testing.T) {
	tests := map[string]bool{}
	for _, pattern := range []string{"../../test/install/*_test.go", "../../test/e2e/*_test.go", "../../test/e2e/*/*_test.go"} {
		sources, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, source), -1) {
				tests[match[1]] = true
			}
		}
	}
	blocks := regexp.MustCompile("(?m)^```sh(.*)$")
	for _, path := range userPages(t) {
		name, page := filepath.Base(path), read(t, path)
		typed := false
		found := blocks.FindAllStringSubmatch(page, -1)
		for _, block := range found {
			typed = typed || block[1] == ""
			if block[1] != "" && !regexp.MustCompile(`^ notest: \S`).MatchString(block[1]) {
				t.Errorf("%s has a block of commands with %q, want nothing or a reason after \"notest: \"", name, block[1])
			}
		}
		switch test := typedBy[name]; {
		case name == "README.md" || name == "architecture.md":
		case len(found) == 0:
			t.Errorf("%s has no commands to copy", name)
		case typed && !tests[test]:
			t.Errorf("%s has commands, but no test runs them: %q", name, test)
		case !typed && test != "":
			t.Errorf("%s has no commands for %s", name, test)
		}
	}
}

// userPages returns the pages for users.
func userPages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages were found: %v", len(pages), err)
	}
	return pages
}
