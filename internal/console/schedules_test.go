package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/browser"
)

func TestSchedulesAreExplained(t *testing.T) {
	v, api := newVisitor(t)
	if got := v.send(http.MethodPost, "/schedules", strings.NewReader("{}"), nil); got.code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", got.code)
	}
	v.login(token(v.c.URL()))
	question := `{"limit": 3, "after": "2026-03-28T00:00:00Z", "upTo": "2026-04-30T00:00:00Z", "cronTabs": [
		{"metadata": {"name": "a"}, "spec": {"schedule": "30 2 * * *", "timeZone": "Europe/Berlin"}},
		{"metadata": {"name": "b"}, "spec": {"schedules": ["61 * * * *", "@daily"], "excludeDates": ["soon"]}},
		{"metadata": {"name": "c"}}]}`
	got := v.send(http.MethodPost, "/schedules", strings.NewReader(question), nil)
	want := `{"cronTabs":[{"words":["At 02:30 every day"],"after":"2026-03-28T01:00:00+01:00",` +
		`"runs":[{"time":"2026-03-28T02:30:00+01:00"},{"time":"2026-03-29T03:00:00+02:00","clocks":"Skipped"},{"time":"2026-03-30T02:30:00+02:00"}],"more":true,"errors":[]},` +
		`{"words":["At 00:00 every day"],"runs":[],"more":false,"errors":[` +
		`{"field":"spec.schedules[0]","message":"minute \"61\", character 1: must be 0 to 59"},` +
		`{"field":"spec.excludeDates[0]","message":"date \"soon\", character 1: must be a date such as 2026-12-24 or a range such as 2026-12-24/2027-01-01"}]},` +
		`{"words":[],"after":"2026-03-28T00:00:00Z","runs":[],"more":false,"errors":[]}]}`
	if diff := cmp.Diff(want, strings.TrimSpace(got.body)); got.code != http.StatusOK || diff != "" {
		t.Errorf("%d (-want +got):\n%s", got.code, diff)
	}
	many, _ := json.Marshal(map[string]any{"limit": 1, "cronTabs": make([]stablev1.CronTab, 33)})
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"no question":       {"schedule", http.StatusBadRequest},
		"too many CronTabs": {string(many), http.StatusBadRequest},
		"too many runs":     {`{"limit": 100000}`, http.StatusBadRequest},
		"no runs":           {`{"limit": 0}`, http.StatusBadRequest},
		"many schedules":    {`{"limit": 1, "cronTabs": [{"spec": {"schedules": ["` + strings.Repeat(`", "`, 40) + `"]}}]}`, http.StatusBadRequest},
		"a large question":  {`{"cronTabs": [{"spec": {"schedule": "` + strings.Repeat("*", 300<<10) + `"}}]}`, http.StatusRequestEntityTooLarge},
	} {
		if got := v.send(http.MethodPost, "/schedules", strings.NewReader(tt.body), nil); got.code != tt.want {
			t.Errorf("%s: %d %s, want %d", name, got.code, got.body, tt.want)
		}
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d requests reached the API", n)
	}
}

func TestBackfillsAreCounted(t *testing.T) {
	v, _ := newVisitor(t)
	v.login(token(v.c.URL()))
	for _, tt := range []struct{ name, schedule, from, to, want string }{
		{"in the zone of the CronTab", "0 3 * * *", "2026-03-28", "2026-03-30T02:59", `{"from":"2026-03-28T00:00:00+01:00","to":"2026-03-30T02:59:00+02:00","times":2}`},
		{"times that are to come", "0 3 * * *", "2126-03-28", "2126-03-30", `{"from":"2126-03-28T00:00:00+01:00","to":"2126-03-30T00:00:00+01:00","times":0}`},
		{"too many", "* * * * * *", "2026-01-01", "2026-01-02", `{"from":"2026-01-01T00:00:00+01:00","to":"2026-01-02T00:00:00+01:00","times":86401,` +
			`"message":"the range has 86401 scheduled times, more than 10000: backfill a part of it at a time"}`},
		{"no time", "0 3 * * *", "2026-01-01", "soon", `{"from":"2026-01-01T00:00:00+01:00","to":"0001-01-01T00:00:00Z","times":0,` +
			`"message":"must be a date such as 2026-12-24, or a time such as 2026-12-24T08:00 or 2026-12-24T08:00:00Z"}`},
		{"no schedule", "61 3 * * *", "2026-01-01", "2026-01-02", ""},
	} {
		question := fmt.Sprintf(`{"limit": 1, "after": "2026-01-01T00:00:00Z", "backfill": {"from": %q, "to": %q}, "cronTabs": [{"spec": {"schedule": %q, "timeZone": "Europe/Berlin"}}]}`, tt.from, tt.to, tt.schedule)
		var got struct {
			CronTabs []struct{ Backfill json.RawMessage }
		}
		if err := json.Unmarshal([]byte(v.send(http.MethodPost, "/schedules", strings.NewReader(question), nil).body), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, string(got.CronTabs[0].Backfill)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The fake API has no CronTabs.
func TestTimelineIsThatOfTheUser(t *testing.T) {
	v, api := newVisitor(t)
	if got := v.send(http.MethodGet, "/timeline", nil, nil); got.code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", got.code)
	}
	v.login(token(v.c.URL()))
	for _, tt := range []struct {
		query, within string
		resources     []string // that are read
		want          int
		body          string
	}{
		{"", "", []string{"crontabs", "jobs"}, http.StatusOK, `"svg":"\u003csvg `},
		{"?namespace=team&zone=Europe/Berlin&from=2026-12-24", "/namespaces/team", []string{"crontabs", "jobs"}, http.StatusOK, `"from":"2026-12-24T00:00:00+01:00"`},
		{"?namespace=expired", "/namespaces/expired", []string{"crontabs"}, http.StatusGone, ""},
		{"?zone=Mars", "", nil, http.StatusBadRequest, ""},
		{"?from=soon", "", nil, http.StatusBadRequest, "The first day must be a date"},
		{"?namespace=team/pods/..", "", nil, http.StatusBadRequest, ""},
		{"?namespace=..", "", nil, http.StatusBadRequest, ""},
	} {
		before := len(api.seen())
		got := v.send(http.MethodGet, "/timeline"+tt.query, nil, nil)
		var want, read []string
		for _, resource := range tt.resources {
			want = append(want, map[string]string{
				"crontabs": "/clusters/a/apis/stable.example.com/v1" + tt.within + "/crontabs?limit=500",
				"jobs":     "/clusters/a/apis/batch/v1" + tt.within + "/jobs?labelSelector=crontab.stable.example.com%2Fname&limit=500",
			}[resource])
		}
		for _, request := range api.seen()[before:] {
			read = append(read, request.URL.Path+"?"+request.URL.Query().Encode())
			if request.Header.Get("Authorization") != "Bearer users-token" {
				t.Errorf("%q: %s as %q", tt.query, request.URL, request.Header.Get("Authorization"))
			}
		}
		if got.code != tt.want || !slices.Equal(read, want) || !strings.Contains(got.body, tt.body) {
			t.Errorf("%q: %d %s, read %q", tt.query, got.code, got.body, read)
		}
	}
}

// run creates a Job as the controller would, for a run at a time that ended after five minutes.
func (w *world) run(cronTab *stablev1.CronTab, at time.Time, end batchv1.JobConditionType) {
	w.t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: fmt.Sprintf("%s-%d", cronTab.Name, at.Unix()), Labels: map[string]string{stablev1.NameLabel: cronTab.Name},
			Annotations:     map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.UTC().Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronTab, stablev1.SchemeGroupVersion.WithKind("CronTab"))},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}}},
	}
	if err := w.client.Create(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	before := map[batchv1.JobConditionType]batchv1.JobConditionType{batchv1.JobComplete: batchv1.JobSuccessCriteriaMet, batchv1.JobFailed: batchv1.JobFailureTarget}[end]
	if before == "" {
		return
	}
	start, done := metav1.NewTime(job.CreationTimestamp.Time), metav1.NewTime(job.CreationTimestamp.Add(5*time.Minute))
	job.Status.StartTime = &start
	if end == batchv1.JobComplete {
		job.Status.CompletionTime = &done
	}
	for _, kind := range []batchv1.JobConditionType{before, end} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: done})
	}
	if err := w.client.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

// cronTab creates a CronTab with a schedule.
func (w *world) cronTab(name, schedule string, changes ...func(*stablev1.CronTabSpec)) *stablev1.CronTab {
	w.t.Helper()
	made := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: stablev1.CronTabSpec{
		Schedule:    stablev1.Schedule(schedule),
		JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}},
	}}
	for _, change := range changes {
		change(&made.Spec)
	}
	w.create(made, "True", "Scheduled", "The next run is scheduled")
	return made
}

func TestTimeLines(t *testing.T) {
	w := newWorld(t)
	report := w.cronTab("report", "*/20 * * * *")
	now := time.Now().Truncate(time.Second)
	w.run(report, now.Add(-40*time.Minute), batchv1.JobComplete)
	w.run(report, now.Add(-20*time.Minute), batchv1.JobFailed)
	w.run(report, now, "")
	w.cronTab("tick", "* * * * * *")
	c := serve(t, w.config)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/?namespace="+w.namespace+"#", 1))
	lane := func(name string) string {
		return fmt.Sprintf(`document.querySelector('.lane svg[aria-label^="%s/%s:"]')`, w.namespace, name)
	}
	b.Until("!!" + lane("report") + `?.ariaLabel.endsWith(": 1 Succeeded, 1 Failed, 1 Active, 18 Coming")`)
	b.Until("!!" + lane("tick") + ` && ` + lane("tick") + `.querySelectorAll(".run.coming").length > 90`)
	b.Until(`!!` + lane("tick") + `.querySelector(".run-more")`)
	b.Accessible()
	b.Keep("overview-timeline")
	b.Open(c.Address() + "/crontabs?namespace=" + w.namespace)
	b.Click("Time line")
	b.Until(`location.search.includes("view=timeline")`)
	b.Until("!!" + lane("report") + `?.ariaLabel.includes("1 Failed, 1 Active, 9 Coming")`)
	b.Accessible()
	b.Keep("schedules-timeline")

	b.Open(c.Address() + "/crontabs/" + w.namespace + "/report")
	b.Sees("Every 20 minutes", "Run again", "40m", "20m")
	b.Fill("Length", "3600000")
	b.Until(`document.querySelector(".lane:not(.axis) svg").ariaLabel === "report: 1 Failed, 1 Active, 1 Coming" || document.querySelector(".lane:not(.axis) svg").ariaLabel === "report: 1 Failed, 1 Active, 2 Coming"`)
	b.Accessible()
	b.Keep("schedule")
	b.Until(`[...document.querySelectorAll("main button")].filter((b) => b.textContent === "Run again").length === 3`)
	browser.Value[bool](b, `([...document.querySelectorAll("main button")].filter((b) => b.textContent === "Run again").at(-1).click(), true)`)
	b.Sees("was requested")
	eventually(w, report, func(c *stablev1.CronTab) bool {
		return c.Spec.RunRequestedAt != nil && c.Spec.RunRequestedAt.Time.Equal(now.Add(-40*time.Minute).Truncate(time.Second))
	})
}

func TestScheduleEditor(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/crontabs/"+w.namespace+"/backup", "422")
	b.Sees("At 03:00 every day")
	b.Click("Change the schedule")
	b.Fill("Schedule", "61 * * * *")
	b.Sees("must be 0 to 59")
	b.Click("Save")
	b.Sees("CronTab", "is invalid")
	b.Fill("Schedule", "30 2 29 MAR *\n0 0 1 APR *")
	b.Fill("Time zone", "Europe/Berlin")
	b.Fill("Dates without runs", "2026-12-24")
	b.Sees("At 02:30 on day 29 of the month in March", "At 00:00 on day 1 of the month in April", "clocks forward by 1 h before this run")
	b.Until(`document.querySelectorAll(".times tbody tr").length === 10`)
	b.Accessible()
	b.Keep("schedule-editor")
	b.Click("Save")
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backup"}}
	eventually(w, cronTab, func(c *stablev1.CronTab) bool {
		return c.Spec.Schedule == "" && len(c.Spec.Schedules) == 2 && c.Spec.TimeZone == "Europe/Berlin" && len(c.Spec.ExcludeDates) == 1
	})
	b.Sees("Change the schedule", "Europe/Berlin")
}

func TestRunWithValuesAndBackfill(t *testing.T) {
	w := newWorld(t)
	cronTab := w.cronTab("report", "0 3 * * *")
	cronTab.Spec.TimeZone, cronTab.Spec.ConcurrencyPolicy = "Europe/Berlin", stablev1.AllowConcurrent
	cronTab.Spec.Parameters = []stablev1.Parameter{{Name: "region", Default: "us", Enum: []stablev1.ParameterValue{"us", "eu"}, Description: "Where"}, {Name: "day"}}
	if err := w.client.Update(t.Context(), cronTab); err != nil {
		t.Fatal(err)
	}
	b := openPage(t, w.config, "/crontabs/"+w.namespace+"/report")
	run := func(label, value string, want map[string]stablev1.ParameterValue) {
		b.Click("Run now …")
		b.Fill(label, value)
		b.Accessible()
		b.Keep("run-" + label)
		b.Click("Run now")
		eventually(w, cronTab, func(c *stablev1.CronTab) bool {
			return c.Spec.RunRequestedAt != nil && maps.Equal(c.Spec.RunParameters, want)
		})
		b.Until(`!document.querySelector("dialog")`)
	}
	run("region", "eu", map[string]stablev1.ParameterValue{"region": "eu"})
	run("day", "2026-11-01", map[string]stablev1.ParameterValue{"day": "2026-11-01"}) // not with the value of the run before

	b.Click("Backfill …")
	b.Fill("From", "2026-03-30T00:00")
	b.Fill("To", "2026-03-29T00:00")
	b.Sees("has no time in this range")
	b.Fill("From", "2026-03-28T00:00")
	b.Fill("Order", "LatestFirst")
	b.Fill("Runs at a time", "2")
	b.Sees("Scheduled times in this range: 1")
	b.Accessible()
	b.Keep("backfill")
	b.Click("Start the backfill")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool {
		asked := c.Spec.Backfill
		return asked != nil && asked.From.UTC().Format(time.RFC3339) == "2026-03-27T23:00:00Z" && asked.To.UTC().Format(time.RFC3339) == "2026-03-28T23:00:00Z" &&
			asked.Reprocess == stablev1.ReprocessNone && asked.Order == stablev1.LatestFirst && asked.MaxConcurrency == 2
	})
	b.Sees("It has not started yet")
	cronTab.Status.Backfill = &stablev1.BackfillStatus{RequestedAt: cronTab.Spec.Backfill.RequestedAt, Total: 4, Done: 3}
	if err := w.client.Status().Update(t.Context(), cronTab); err != nil {
		t.Fatal(err)
	}
	b.Sees("In progress", "3 of 4 scheduled times are done")
	b.Accessible()
	b.Click("Cancel the backfill")
	b.Sees("Active runs continue")
	b.Click("Cancel the backfill")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return c.Spec.Backfill == nil })
	b.Sees("Cancelled")
}

func TestRunsPerHour(t *testing.T) {
	w := newWorld(t)
	a := w.cronTab("a", "*/2 * * * *")
	w.run(a, time.Now().Truncate(time.Second), batchv1.JobComplete)
	w.cronTab("b", "30 2 * * *", func(spec *stablev1.CronTabSpec) { spec.TimeZone = "Europe/Berlin" })
	b := openPage(t, w.config, "/crontabs?namespace="+w.namespace)
	b.Click("Runs per hour")
	b.Until(`document.querySelector("img[alt^='Schedules that run: 3.']")?.naturalWidth > 400`)
	b.Sees("Busiest minutes", w.namespace+"/a", w.namespace+"/b", "up to 3 are active at once", "a: a run lasts 5m0s, and the next one can be due after 2m0s.")
	b.Fill("First day", "2027-03-25")
	b.Sees("Changes of the clocks", "the clocks skip the scheduled time, so it runs right after")
	b.Accessible()
	b.Keep("runs-per-hour")
}

func TestScheduleOfAReader(t *testing.T) {
	w := newWorld(t)
	w.allowIn("ann", "stable.example.com", "crontabs")
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "ann"
	c := serve(t, config)
	b := browser.New(t) // closed before the console
	b.Expect("403")
	b.Open(strings.Replace(c.URL(), "/#", "/crontabs/"+w.namespace+"/backup#", 1))
	b.Sees("At 03:00 every day", "You may not see Jobs")
	b.Until(`[...document.querySelectorAll("main button")].find((b) => b.textContent === "Change the schedule")?.title.startsWith("You may not patch crontabs")`)
	b.Until(`[...document.querySelectorAll("main button")].filter((b) => ["Run now", "Suspend", "Backfill …"].includes(b.textContent) && b.disabled).length === 3`)
	b.Open(c.Address() + "/crontabs?view=heat")
	b.Sees("Schedules cannot be listed", `User "ann" cannot list resource "crontabs"`)
	b.Open(c.Address() + "/crontabs?view=heat&namespace=" + w.namespace)
	b.Until(`!!document.querySelector("img[alt^='Schedules that run: 1.']")`)
	b.Sees("How long runs last is not known.", `User "ann" cannot list resource "jobs"`)
}
