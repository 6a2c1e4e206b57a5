package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
)

const (
	timelineDays = 7
	// timelineLimit is how many CronTabs, and how many of their Jobs, are read for a timeline, in one request.
	timelineLimit = "500"
)

// timeline is what the CronTabs of a namespace, or of all, will do.
type timeline struct {
	crontab.Timeline
	// SVG is a picture of the runs in each hour.
	SVG string `json:"svg"`
	// More reports whether there are more CronTabs.
	More bool `json:"more"`
	// NoJobs is why no durations are known: the user may not list Jobs.
	NoJobs string `json:"noJobs,omitempty"`
}

// timeline tells, as the user, what CronTabs will do in seven days from a day in the zone that the page names, by default from today.
func (c *Console) timeline(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	within := ""
	if namespace := query.Get("namespace"); namespace != "" {
		within = "/namespaces/" + namespace
		if !isName(namespace) {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "This is not the name of a namespace.")
			return
		}
	}
	zone, err := cron.LoadLocation(query.Get("zone"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	from, err := crontab.ParseTime(cmp.Or(query.Get("from"), time.Now().In(zone).Format(time.DateOnly)), zone)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "The first day "+err.Error()+".")
		return
	}
	var cronTabs stablev1.CronTabList
	var jobs batchv1.JobList
	status := c.read(r.Context(), "/apis/"+stablev1.SchemeGroupVersion.String()+within+"/crontabs?limit="+timelineLimit, &cronTabs)
	var noJobs string
	if status == nil {
		status = c.read(r.Context(), "/apis/batch/v1"+within+"/jobs?limit="+timelineLimit+"&labelSelector="+stablev1.NameLabel, &jobs)
		if status != nil && status.Code == http.StatusForbidden {
			noJobs, status = status.Message, nil
		}
	}
	if status != nil {
		answer(w, int(status.Code), status)
		return
	}
	found := crontab.NewTimeline(cronTabs.Items, from, from.AddDate(0, 0, timelineDays), crontab.MeanDurations(jobs.Items))
	var picture strings.Builder
	_ = found.WriteSVG(&picture, zone) // a Builder does not fail
	answer(w, http.StatusOK, timeline{found, picture.String(), cronTabs.Continue != "", noJobs})
}
