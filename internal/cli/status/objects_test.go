package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/instance"
)

func TestCronTabState(t *testing.T) {
	conditions := func(all ...string) *stablev1.CronTab {
		c := &stablev1.CronTab{}
		for i := 0; i < len(all); i += 2 {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: all[i], Status: metav1.ConditionStatus(all[i+1])})
		}
		return c
	}
	suspended := conditions("Ready", "True")
	suspended.Spec.Suspend = ptr.To(true)
	for want, cronTab := range map[string]*stablev1.CronTab{
		"":              {},
		"Scheduled":     conditions("Ready", "True", "LastRunSucceeded", "True", "RunsStuck", "False"),
		"LastRunFailed": conditions("Ready", "True", "LastRunSucceeded", "False", "RunsStuck", "False"),
		"Stuck":         conditions("Ready", "True", "LastRunSucceeded", "False", "RunsStuck", "True"),
		"NotReady":      conditions("Ready", "False", "RunsStuck", "True"),
		"Suspended":     suspended,
	} {
		if got := cronTabState(cronTab); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCount(t *testing.T) {
	counts := count([]string{"Running", "", "Stopped", "Running"}, func(s *string) string { return *s })
	if diff := cmp.Diff(map[string]int{"Running": 2, "Stopped": 1, "Pending": 1}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := describe(counts); got != "1 Pending, 2 Running, 1 Stopped" {
		t.Errorf("described as %q", got)
	}
	if got := describe(nil); got != "none" {
		t.Errorf("none is described as %q", got)
	}
}

func TestDescribeDirectories(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_DATA_HOME", "")
	directories := []instance.Directory{{Path: "/home/me/.local/share/keelson"}, {Path: "/srv/a", Running: true}, {Path: "/srv/b c"}}
	want := `
Other data directories of this user:

  stopped  keelson up
  running  keelson status --data-dir /srv/a
`
	if diff := cmp.Diff(want, describeDirectories("/srv/b c", directories)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := describeDirectories("/srv/a", directories[1:2]); got != "" {
		t.Errorf("one directory: %q", got)
	}
}
