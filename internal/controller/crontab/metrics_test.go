package crontab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMetricsAreGoneWithTheirCronTab(t *testing.T) {
	cronTab := newCronTab(suspend)
	cronTab.Status = stablev1.CronTabStatus{
		ActiveCount: 2, Queued: 3, MissedRuns: 4,
		LastScheduleTime: ptr.To(metav1.NewTime(noon)),
		Conditions:       []metav1.Condition{{Type: stablev1.ConditionReady, Status: metav1.ConditionTrue}},
	}
	reader := fake.NewClientBuilder().WithScheme(harness.Scheme(t, stablev1.AddToScheme)).WithObjects(cronTab).Build()
	c := &collector{sources: map[client.Reader]struct{}{}}
	c.add(reader)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	gather := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				var labels []string
				for _, label := range metric.Label {
					labels = append(labels, label.GetValue())
				}
				values[family.GetName()+" "+strings.Join(labels, "/")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
		return values
	}
	want := map[string]float64{
		"crontab_status_active tick/market":             2,
		"crontab_status_queued tick/market":             3,
		"crontab_status_missed_runs_total tick/market":  4,
		"crontab_status_last_schedule_time tick/market": float64(noon.Unix()),
		"crontab_spec_suspend tick/market":              1,
		"crontab_spec_jitter_seconds tick/market":       0,
		"crontab_status_schedule_valid tick/market":     0,
		"crontab_status_ready tick/market":              1,
	}
	if diff := cmp.Diff(want, gather()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if err := reader.Delete(t.Context(), cronTab); err != nil {
		t.Fatal(err)
	}
	if left := gather(); len(left) > 0 {
		t.Errorf("metrics of a CronTab that is gone: %v", left)
	}
}
