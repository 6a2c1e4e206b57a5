package console

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
)

const (
	timelineDays = 7
	// timelineLimit is how many CronTabs are read for a timeline, in one request.
	timelineLimit = "500"
)

var namespaceName = regexp.MustCompile("^" + name + "$")

// timeline is what the CronTabs of a namespace, or of all, will do.
type timeline struct {
	crontab.Timeline
	// SVG is a picture of the runs in each hour.
	SVG string `json:"svg"`
	// More reports whether there are more CronTabs.
	More bool `json:"more"`
}

// timeline tells, as the user, what CronTabs will do in seven days from today, which is a day in the zone that the page names.
func (c *Console) timeline(w http.ResponseWriter, r *http.Request) {
	zone, err := cron.LoadLocation(r.URL.Query().Get("zone"))
	path := "/apis/" + stablev1.SchemeGroupVersion.String()
	if namespace := r.URL.Query().Get("namespace"); namespace != "" {
		path += "/namespaces/" + namespace
		if !namespaceName.MatchString(namespace) || strings.Contains(namespace, "..") {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "This is not the name of a namespace.")
			return
		}
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	var cronTabs stablev1.CronTabList
	if status := c.read(r.Context(), path+"/crontabs?limit="+timelineLimit, &cronTabs); status != nil {
		answer(w, int(status.Code), status)
		return
	}
	year, month, day := time.Now().In(zone).Date()
	from := time.Date(year, month, day, 0, 0, 0, 0, zone)
	found := crontab.NewTimeline(cronTabs.Items, from, from.AddDate(0, 0, timelineDays), nil)
	var picture strings.Builder
	_ = found.WriteSVG(&picture, zone) // a Builder does not fail
	answer(w, http.StatusOK, timeline{found, picture.String(), cronTabs.Continue != ""})
}
