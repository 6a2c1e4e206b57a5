package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
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
