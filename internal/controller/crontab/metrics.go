package crontab

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// startLag is a histogram over the runs of all CronTabs.
var startLag = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "crontab_start_lag_seconds",
	Help:    "Time from when a scheduled run was due until the API server had created its Job.",
	Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300},
})

// The names are those of kube-state-metrics for CronJob, with another prefix.
var (
	labels         = []string{"namespace", "crontab"}
	activeJobs     = prometheus.NewDesc("crontab_status_active", "Jobs that have not finished.", labels, nil)
	queuedRuns     = prometheus.NewDesc("crontab_status_queued", "Runs that wait to be started.", labels, nil)
	missedRuns     = prometheus.NewDesc("crontab_status_missed_runs_total", "Runs missed since the creation of the CronTab.", labels, nil)
	nextTime       = prometheus.NewDesc("crontab_next_schedule_time", "Scheduled time of the next run, in Unix seconds.", labels, nil)
	lastTime       = prometheus.NewDesc("crontab_status_last_schedule_time", "Scheduled time of the last run that was started, in Unix seconds.", labels, nil)
	lastSuccessful = prometheus.NewDesc("crontab_status_last_successful_time", "Time when a Job last completed, in Unix seconds.", labels, nil)
	lastFailure    = prometheus.NewDesc("crontab_status_last_failure_time", "Time when the last Job failed, in Unix seconds; absent if it succeeded.", labels, nil)
	suspended      = prometheus.NewDesc("crontab_spec_suspend", "1 if scheduled runs are suspended.", labels, nil)
	stopped        = prometheus.NewDesc("crontab_status_stopped", "1 if spec.suspendAfterFailures has stopped scheduled runs.", labels, nil)
	jitter         = prometheus.NewDesc("crontab_spec_jitter_seconds", "Maximum delay of a run after its scheduled time (spec.jitter).", labels, nil)
	scheduleValid  = prometheus.NewDesc("crontab_status_schedule_valid", "1 if schedules, time zone and dates are valid.", labels, nil)
	readiness      = prometheus.NewDesc("crontab_status_ready", "1 if the condition Ready is True.", labels, nil)
)

// metricsCollector exports the metrics of each CronTab from the caches of the managers in this
// process at every scrape, so that no series remains for a deleted CronTab.
var metricsCollector = &collector{sources: map[client.Reader]struct{}{}}

func init() {
	metrics.Registry.MustRegister(startLag, metricsCollector)
}

// exporter registers the cache of a manager with metricsCollector while the manager runs.
type exporter struct{ cache client.Reader }

// Start implements manager.Runnable.
func (e exporter) Start(ctx context.Context) error {
	metricsCollector.add(e.cache)
	defer metricsCollector.remove(e.cache)
	<-ctx.Done()
	return nil
}

type collector struct {
	mu      sync.Mutex
	sources map[client.Reader]struct{}
}

func (c *collector) add(source client.Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[source] = struct{}{}
}

func (c *collector) remove(source client.Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources, source)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{activeJobs, queuedRuns, missedRuns, nextTime, lastTime, lastSuccessful, lastFailure, suspended, stopped, jitter, scheduleValid, readiness} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(collected chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for source := range c.sources {
		var all stablev1.CronTabList
		//nolint:forbidigo // Collect has no context, and this only reads the cache.
		if err := source.List(context.Background(), &all, client.UnsafeDisableDeepCopy); err != nil {
			collected <- prometheus.NewInvalidMetric(activeJobs, err)
			continue
		}
		for i := range all.Items {
			collect(&all.Items[i], collected)
		}
	}
}

func collect(cronTab *stablev1.CronTab, collected chan<- prometheus.Metric) {
	gauge := func(description *prometheus.Desc, value float64) {
		collected <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, cronTab.Namespace, cronTab.Name)
	}
	truth := func(description *prometheus.Desc, value bool) {
		number := 0.0
		if value {
			number = 1
		}
		gauge(description, number)
	}
	at := func(description *prometheus.Desc, t time.Time) {
		if !t.IsZero() {
			gauge(description, float64(t.Unix()))
		}
	}
	status := &cronTab.Status
	gauge(activeJobs, float64(len(status.Active)))
	queued := len(status.QueuedTimes)
	if !crontab.OpenRequest(cronTab).IsZero() {
		queued++
	}
	gauge(queuedRuns, float64(queued))
	collected <- prometheus.MustNewConstMetric(missedRuns, prometheus.CounterValue, float64(status.MissedRuns), cronTab.Namespace, cronTab.Name)
	at(nextTime, fromMetaTime(status.NextScheduleTime))
	at(lastTime, fromMetaTime(status.LastScheduleTime))
	at(lastSuccessful, fromMetaTime(status.LastSuccessfulTime))
	if last := status.LastRun; last != nil && last.Result == stablev1.RunFailed {
		at(lastFailure, last.FinishTime.Time)
	}
	truth(suspended, isSuspended(cronTab))
	truth(stopped, crontab.IsStopped(cronTab))
	gauge(jitter, ptr.Deref(cronTab.Spec.Jitter, metav1.Duration{}).Seconds())
	truth(scheduleValid, meta.IsStatusConditionTrue(status.Conditions, stablev1.ConditionScheduleValid))
	truth(readiness, meta.IsStatusConditionTrue(status.Conditions, stablev1.ConditionReady))
}
