package crds_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/files"
)

// A page with more words answers more than one question, and needs a table of contents.
const longestPage = 800

func TestLengthOfThePages(t *testing.T) {
	for _, path := range userPages(t) {
		if words := len(strings.Fields(files.Read(t, path))); words > longestPage && filepath.Base(path) != "architecture.md" {
			t.Errorf("%s has %d words, want at most %d: cut it, or split it by task", path, words, longestPage)
		}
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
	"crontab-after.md":             "TestCronTabPage",
	"crontab-ping.md":              "TestLongEnabledKinds",
	"crontab-tasks.md":             "TestCronTabPage",
	"crontab.md":                   "TestCronTabPage",
	"crontab-schedules.md":         "TestSchedulesPage",
	"disks.md":                     "TestLongDisksPage",
	"drivers.md":                   "TestLongDriversPage",
	"engines.md":                   "TestLongClusterPage",
	"fifty-machines.md":            "TestLongFiftyMachinesPage",
	"foo.md":                       "TestFooPage",
	"gitops.md":                    "TestLongGitOpsPage",
	"guest.md":                     "TestLongGuestPage",
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
	"sleep.md":                     "TestLongSleepPage",
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
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(files.Read(t, source), -1) {
				tests[match[1]] = true
			}
		}
	}
	blocks := regexp.MustCompile("(?m)^```sh(.*)$")
	for _, path := range userPages(t) {
		name, page := filepath.Base(path), files.Read(t, path)
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
