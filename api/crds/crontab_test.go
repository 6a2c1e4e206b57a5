package crds_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

const (
	podJSON       = `"containers":[{"name":"main","image":"busybox"}],"restartPolicy":"Never"`
	shortTemplate = `"jobTemplate":{` + podJSON + `}`
	fullTemplate  = `"jobTemplate":{"spec":{"template":{"spec":{` + podJSON + `}}}}`
)

// refusal returns whether err says so of a field.
func refusal(t *testing.T, err error, field, says string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want the API server to call it invalid", err)
	}
	if !slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == field && strings.Contains(cause.Message, says)
	}) {
		t.Errorf("got %v, want an error at %s that says %q", err, field, says)
	}
	if strings.Contains(err.Error(), "schema") {
		t.Errorf("the refusal has words of the validator that help nobody: %v", err)
	}
}

func TestCronTabAccepted(t *testing.T) {
	namespace := env.Namespace(t)
	for _, test := range []struct{ name, object, spec string }{
		{"nothing at all", "", `{}`},
		{"the short form", "", `{"schedule":"@daily",` + shortTemplate + `}`},
		{"without a restartPolicy", "", `{"jobTemplate":{"containers":[{"name":"a","image":"b"}]}}`},
		{"without a restartPolicy, in full", "", `{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}}}`},
		{"the full form", "", `{"schedule":"@daily",` + fullTemplate + `}`},
		{"the longest name", strings.Repeat("a", 52), `{"schedule":"@daily",` + shortTemplate + `}`},
		{"what kubectl writes into templates", "", `{"schedule":"@daily","jobTemplate":{"metadata":{"name":"x","creationTimestamp":null,"labels":{"a":"b"}},"spec":{"template":{"metadata":{"creationTimestamp":null},"spec":{` + podJSON + `}}}}}`},
		{"two variables of a name, as a Job has it", "", `{"schedule":"@daily","jobTemplate":{"restartPolicy":"OnFailure","containers":[{"name":"a","image":"b","env":[{"name":"x","value":"1"},{"name":"x","value":"2"}]}]}}`},
		{"several schedules", "", `{"schedules":["@daily","0 12 * * *"],` + shortTemplate + `}`},
		{"parameters", "", `{"schedule":"@daily","parameters":[{"name":"region","default":"us","enum":["us","eu"]},{"name":"_Note2","description":"why"}],` + shortTemplate + `}`},
		{"a run with values", "", `{"runRequestedAt":"2026-01-01T00:00:00Z","runParameters":{"region":"eu","ticket":"a=b"},"parameters":[{"name":"region","enum":["","eu"]},{"name":"ticket","required":true}],` + shortTemplate + `}`},
		{"after others", "", `{"after":[{"crontab":"a"},{"crontab":"b","condition":"Failed"}],` + shortTemplate + `}`},
		{"a backfill", "", `{"schedule":"@daily","backfill":{"requestedAt":"2026-01-03T00:00:00Z","from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"},` + shortTemplate + `}`},
		{"a ping", "", `{"ping":{"url":"https://hc.example:8000/check/1@2?create=1","events":["Failure"]}}`},
		{"a ping to an address", "", `{"ping":{"url":"http://[::1]:8000"}}`},
		{"a ping with a Secret", "", `{"ping":{"secretRef":{"name":"check"}}}`},
		{"everything", "", `{"schedule":"H H(0-5) * * MON-FRI","timeZone":"America/Argentina/Buenos_Aires","daylightSaving":"Literal","jitter":"30s",` +
			`"notBefore":"2026-01-01T00:00:00Z","notAfter":"2027-01-01T00:00:00Z","excludeDates":["2026-12-24/2027-01-01","2026-02-28"],"suspend":true,` +
			`"startingDeadlineSeconds":10,"missedRuns":"All","maxMissedRuns":100,"concurrencyPolicy":"Queue","maxConcurrency":2,` +
			`"successfulJobsHistoryLimit":0,"failedJobsHistoryLimit":0,` + shortTemplate + `}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := create(t, namespace, newObject(t, "CronTab", test.object, test.spec)); err != nil {
				t.Errorf("it was refused: %v", err)
			}
		})
	}
}

// The values of a run that has started forbid no change of the parameters, and the next run needs values that fit.
func TestCronTabParametersChange(t *testing.T) {
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	cronTabs := client.Resource(resources["CronTab"]).Namespace(env.Namespace(t))
	object := newObject(t, "CronTab", "", `{"runRequestedAt":"2026-01-01T00:00:00.5Z","runParameters":{"a":"b"},"parameters":[{"name":"a"}],`+shortTemplate+`}`)
	if object, err = cronTabs.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(content string, subresources ...string) error {
		_, err := cronTabs.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...)
		return err
	}
	refusal(t, patch(`{"spec":{"parameters":[{"name":"other"}]}}`), "spec.runParameters", "must be one of spec.parameters")
	if err := patch(`{"status":{"lastRunRequestedAt":"2026-01-01T00:00:00Z"}}`, "status"); err != nil {
		t.Fatal(err)
	}
	if err := patch(`{"spec":{"parameters":[{"name":"other","required":true}]}}`); err != nil {
		t.Errorf("other parameters: %v", err)
	}
	refusal(t, patch(`{"spec":{"runRequestedAt":"2026-01-02T00:00:00Z"}}`), "spec.runParameters", "must be one of spec.parameters")
	if err := patch(`{"spec":{"runRequestedAt":"2026-01-02T00:00:00Z","runParameters":{"a":null,"other":"c"}}}`); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

func TestCronTabRefused(t *testing.T) {
	namespace := env.Namespace(t)
	for _, test := range []struct{ name, spec, field, says string }{
		{"both", `{"schedule":"@daily","schedules":["@daily"],` + shortTemplate + `}`, "spec.schedules", "not both"},
		{"no template", `{"schedule":"@daily"}`, "spec.jobTemplate", "needs a jobTemplate"},
		{"no list of schedules", `{"schedules":[],` + shortTemplate + `}`, "spec.schedules", "at least 1"},
		{"an unknown zone", `{"timeZone":"Mars/Base"}`, "spec.timeZone", `"Mars/Base": must be a name of the IANA time zone database`},
		{"a place that its area has not", `{"timeZone":"Europe/Berlim"}`, "spec.timeZone", "unknown time zone Europe/Berlim evaluating rule: must be a name of the IANA time zone database, such as Europe/Berlin"},
		{"an offset that no zone has", `{"timeZone":"Etc/GMT+14"}`, "spec.timeZone", `"Etc/GMT+14": must be a name of the IANA time zone database`},
		{"a duration in days", `{"schedule":"@every 1d",` + shortTemplate + `}`, "spec.schedule", `"@every 1d": must be @every with one duration`},
		{"a duration that is too long", `{"schedule":"@every 9999999h",` + shortTemplate + `}`, "spec.schedule", `"@every 9999999h": must be @every with one duration`},
		{"an abbreviation for a zone", `{"timeZone":"PST"}`, "spec.timeZone", `"PST": must be a name of the IANA time zone database`},
		{"the zone of the machine", `{"timeZone":"Local"}`, "spec.timeZone", "IANA"},
		{"an offset for a zone", `{"timeZone":"+02:00"}`, "spec.timeZone", "IANA"},
		{"a date that never is", `{"excludeDates":["2026-02-30"]}`, "spec.excludeDates[0]", `"2026-02-30": must be a date`},
		{"a month that never is", `{"excludeDates":["2026-12-24/2026-13-01"]}`, "spec.excludeDates[0]", `"2026-12-24/2026-13-01": must be a date`},
		{"a range of dates that runs backwards", `{"excludeDates":["2026-02-02/2026-02-01"]}`, "spec.excludeDates[0]", "the earlier one first"},
		{"a window that runs backwards", `{"notBefore":"2027-01-01T00:00:00Z","notAfter":"2026-01-01T00:00:00Z"}`, "spec.notAfter", "must not be before"},
		{"Replace of several", `{"concurrencyPolicy":"Replace","maxConcurrency":2}`, "spec.maxConcurrency", "Replace"},
		{"another policy", `{"concurrencyPolicy":"Maybe"}`, "spec.concurrencyPolicy", "supported values"},
		{"negative jitter", `{"jitter":"-1s"}`, "spec.jitter", "should match"},
		{"a jitter longer than a day", `{"jitter":"24h1s"}`, "spec.jitter", "must be at most 24h"},
		{"a jitter without a unit", `{"jitter":30}`, "spec.jitter", "must be of type string"},
		{"a parameter that is no variable", `{"parameters":[{"name":"a-b"}]}`, "spec.parameters[0].name", "should match"},
		{"two parameters of a name", `{"parameters":[{"name":"a"},{"name":"a"}]}`, "spec.parameters[1]", "Duplicate"},
		{"a default that is not in the enum", `{"parameters":[{"name":"a","default":"x","enum":["y"]}]}`, "spec.parameters[0].default", "must be one of enum"},
		{"no default, which is not in the enum", `{"parameters":[{"name":"a","enum":["y"]}]}`, "spec.parameters[0].default", "enum must have the empty string"},
		{"a default for what is required", `{"parameters":[{"name":"a","required":true,"default":"x"}]}`, "spec.parameters[0].default", "a required parameter has no default"},
		{"scheduled runs without a value", `{"schedule":"@daily","parameters":[{"name":"a","required":true}],` + shortTemplate + `}`, "spec.parameters", "give it a default instead"},
		{"a value of nothing", `{"runRequestedAt":"2026-01-01T00:00:00Z","runParameters":{"a":"b"}}`, "spec.runParameters", "must be one of spec.parameters"},
		{"a value of an unknown parameter", `{"runRequestedAt":"2026-01-01T00:00:00Z","runParameters":{"b":"c"},"parameters":[{"name":"a"}]}`, "spec.runParameters", "must be one of spec.parameters"},
		{"a value that is not allowed", `{"runRequestedAt":"2026-01-01T00:00:00Z","runParameters":{"a":"c"},"parameters":[{"name":"a","default":"b","enum":["b"]}]}`, "spec.runParameters", "one of the enum"},
		{"a run without a value", `{"runRequestedAt":"2026-01-01T00:00:00Z","parameters":[{"name":"a","required":true}]}`, "spec.runParameters", "a value for each required parameter"},
		{"a run with an empty value", `{"runRequestedAt":"2026-01-01T00:00:00Z","runParameters":{"a":""},"parameters":[{"name":"a","required":true}]}`, "spec.runParameters", "a value for each required parameter"},
		{"a ping to nowhere", `{"ping":{}}`, "spec.ping", "set either url or secretRef"},
		{"a ping to both", `{"ping":{"url":"https://hc.example","secretRef":{"name":"check"}}}`, "spec.ping", "set either url or secretRef"},
		{"a ping without a scheme", `{"ping":{"url":"hc.example/check"}}`, "spec.ping.url", "must be an http or https URL"},
		{"a ping with another scheme", `{"ping":{"url":"file:///etc/passwd"}}`, "spec.ping.url", "must be an http or https URL"},
		{"a ping without a host", `{"ping":{"url":"https:///check"}}`, "spec.ping.url", "must be an http or https URL"},
		{"a ping with a password", `{"ping":{"url":"https://user:password@hc.example/check"}}`, "spec.ping.url", "must not have a user name or password"},
		{"a ping to a long URL", `{"ping":{"url":"https://hc.example/` + strings.Repeat("a", 2048) + `"}}`, "spec.ping.url", "may not be more than 2048"},
		{"a ping for an unknown event", `{"ping":{"url":"https://hc.example","events":["End"]}}`, "spec.ping.events[0]", "supported values"},
		{"a ping for no event", `{"ping":{"url":"https://hc.example","events":[]}}`, "spec.ping.events", "at least 1"},
		{"a ping with a Secret without a name", `{"ping":{"secretRef":{"key":"url"}}}`, "spec.ping.secretRef.name", "Required"},
		{"after others with a schedule", `{"schedule":"@daily","after":[{"crontab":"a"}],` + shortTemplate + `}`, "spec.after", "set either a schedule or after, not both"},
		{"after others without a template", `{"after":[{"crontab":"a"}]}`, "spec.jobTemplate", "after needs a jobTemplate"},
		{"after one twice", `{"after":[{"crontab":"a"},{"crontab":"a"}],` + shortTemplate + `}`, "spec.after[1]", "Duplicate value"},
		{"after an unknown end", `{"after":[{"crontab":"a","condition":"Late"}],` + shortTemplate + `}`, "spec.after[0].condition", "Unsupported value"},
		{"after others with a deadline", `{"after":[{"crontab":"a"}],"startingDeadlineSeconds":1,` + shortTemplate + `}`, "spec.startingDeadlineSeconds", "cannot be combined with after"},
		{"a backfill that runs backwards", `{"schedule":"@daily","backfill":{"requestedAt":"2026-01-03T00:00:00Z","from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"},` + shortTemplate + `}`, "spec.backfill.to", "must not be before from"},
		{"a backfill of nothing", `{"backfill":{"requestedAt":"2026-01-03T00:00:00Z","from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"},` + shortTemplate + `}`, "spec.backfill", "needs a schedule"},
		{"a backfill with Replace", `{"schedule":"@daily","concurrencyPolicy":"Replace","backfill":{"requestedAt":"2026-01-03T00:00:00Z","from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"},` + shortTemplate + `}`, "spec.backfill", "cannot be combined with concurrencyPolicy Replace"},
		{"a template of nothing", `{"jobTemplate":{}}`, "spec.jobTemplate.containers", "Required"},
		{"a pod without containers", `{"jobTemplate":{"restartPolicy":"Never"}}`, "spec.jobTemplate.containers", "Required"},
		{"a pod with a list of none", `{"jobTemplate":{"restartPolicy":"Never","containers":[]}}`, "spec.jobTemplate.containers", "at least 1"},
		{"a pod that restarts for ever", `{"jobTemplate":{"restartPolicy":"Always","containers":[{"name":"a","image":"b"}]}}`, "spec.jobTemplate.restartPolicy", `"Never", "OnFailure"`},
		{"a Job whose pod restarts for ever", `{"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Always","containers":[{"name":"a","image":"b"}]}}}}}`, "spec.jobTemplate.spec.template.spec.restartPolicy", `"Never", "OnFailure"`},
		{"a Job without containers", `{"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}}`, "spec.jobTemplate.spec.template.spec.containers", "Required"},
		{"a Job without a pod", `{"jobTemplate":{"spec":{"template":{}}}}`, "spec.jobTemplate.spec.template.spec", "Required"},
		{"both forms at once", `{"jobTemplate":{"spec":{"template":{"spec":{` + podJSON + `}}},"nodeName":"here"}}`, "spec.jobTemplate", "exclude each other"},
		{"a share of memory that is none", `{"jobTemplate":{"containers":[{"name":"a","image":"b","resources":{"limits":{"memory":true}}}]}}`, "spec.jobTemplate.containers[0].resources.limits.memory", "must be"},
		{"a port that is none", `{"jobTemplate":{"restartPolicy":"Never","containers":[{"name":"a","image":"b","ports":[{"containerPort":"http"}]}]}}`, "spec.jobTemplate.containers[0].ports[0].containerPort", "must be of type integer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := create(t, namespace, newObject(t, "CronTab", "", test.spec))
			refusal(t, err, test.field, test.says)
		})
	}
	t.Run("a name that leaves no room for those of Jobs", func(t *testing.T) {
		_, err := create(t, namespace, newObject(t, "CronTab", strings.Repeat("a", 53), `{}`))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "at most 52 characters") {
			t.Errorf("got %v", err)
		}
	})
}

// An invalid schedule has a message that says what to write: of the API server, or, for what CEL cannot check, of the webhook.
func TestMessagesOfSchedules(t *testing.T) {
	namespace := env.Namespace(t)
	for schedule, message := range map[string]string{
		"0 0 32 * *":       "the day of month must be *, H, or 1 to 31, or a range, list or step of these, or one of L, L-3, LW, 15W",
		"0 0 * * L":        "the day of week must be *, H, or 0 to 7 (0 and 7 are Sunday) or SUN to SAT, or a range, list or step of these, or one of 5L, 2#1",
		"@every 1d":        "must be @every with one duration of at least 1s in hours, minutes and seconds, such as 90s, 1h30m or 24h",
		"TZ=UTC 0 0 * * *": "the time zone does not belong in the schedule: set spec.timeZone",
		"0 22-2 * * *":     `hour "22-2": the range runs backwards; write the smaller value first, or two ranges: 22-23,0-2`,
		"H/61 * * * *":     `minute "H/61": the step must be at most 60, the number of values from 0 to 59`,
		"@every 1500ms":    `duration "1500ms": must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`,
	} {
		object := newObject(t, "CronTab", "", `{`+shortTemplate+`}`)
		object.Object["spec"].(map[string]any)["schedule"] = schedule
		_, err := create(t, namespace, object)
		if err != nil {
			refusal(t, err, "spec.schedule", fmt.Sprintf("%q: %s", schedule, message))
			continue
		}
		if _, err := cron.Parse(schedule, "a/b"); err == nil || !strings.HasSuffix(err.Error(), ": "+message) {
			t.Errorf("%s is accepted, and its error is %v, want %q", schedule, err, message)
		}
	}
}

// What internal/cron reads the API server accepts, and what it accepts internal/cron
// reads, with the exceptions that are named.
func TestSchedulesAreReadAlike(t *testing.T) {
	namespace := env.Namespace(t)
	for _, test := range []struct {
		text string
		// lenient says that the API server lets it through, and a condition tells.
		lenient bool
	}{
		{text: "* * * * *"}, {text: "0 0 * * * *"}, {text: "  0\t0 1 1 * "}, {text: "*/5 9-17 * * MON-FRI"}, {text: "0,15,30-45/5 0 1,15 JAN-mar sun,6,7"},
		{text: "? ? ? ? ?"}, {text: "H H * * *"}, {text: "H/15 * * * *"}, {text: "H(0-29) H(1-5)/2 * * H"}, {text: "0005 007 01 12 0"},
		{text: "5/15 * * * *"}, {text: "0 0 29 2 MON"}, {text: "0 0 31 2 *"}, {text: "59 59 23 31 12 7"},
		{text: "@yearly"}, {text: "@annually"}, {text: "@monthly"}, {text: "@weekly"}, {text: " @daily "}, {text: "@midnight"}, {text: "@hourly"},
		{text: "@every 1s"}, {text: "@every 1h30m"}, {text: "@every  90s "},
		{text: ""}, {text: " "}, {text: "@reboot"}, {text: "@every"}, {text: "@every 0s"}, {text: "@every 500ms"}, {text: "@every -5s"}, {text: "@every 5"}, {text: "@every 5s 5s"}, {text: "@every 1d"},
		{text: "@daily 5"}, {text: "@Daily"}, {text: "* * * *"}, {text: "* * * * * * *"}, {text: "61 * * * *"}, {text: "60 * * * * *"}, {text: "* 24 * * *"},
		{text: "* * 0 * *"}, {text: "* * 32 * *"}, {text: "* * * 0 *"}, {text: "* * * 13 *"}, {text: "* * * * 8"}, {text: "* * * * FOO"}, {text: "* * * MON *"},
		{text: "a * * * *"}, {text: "*/0 * * * *"}, {text: "*/x * * * *"}, {text: "1, * * * *"}, {text: ",1 * * * *"}, {text: "1-2-3 * * * *"}, {text: "-1 * * * *"},
		{text: "* * L * *"}, {text: "* * l-3,L-030W,lW * *"}, {text: "* * 1,15W,31w * *"}, {text: "* * * * 5#2,7L,fril,MON#5"}, {text: "0 * * L * 5L"},
		{text: "* * L-0 * *"}, {text: "* * L-31 * *"}, {text: "* * 32W * *"}, {text: "* * 0W * *"}, {text: "* * W * *"}, {text: "* * WL * *"}, {text: "* * LW-3 * *"}, {text: "* * 1-15W * *"}, {text: "* * L/2 * *"},
		{text: "* * L-1-2 * *"}, {text: "* * * * L"}, {text: "* * * * 5#0"}, {text: "* * * * 5#6"}, {text: "* * * * 5#05"}, {text: "* * * * #2"}, {text: "* * * * 5#"}, {text: "* * * * 5#2#1"}, {text: "* * * * 1-5L"},
		{text: "* * * * 5L/2"}, {text: "* * * * 5W"}, {text: "* * * * 8L"}, {text: "* * 5L * *"}, {text: "* * 1#2 * *"}, {text: "* L * * *"}, {text: "15W * * * *"}, {text: "0~30 * * * *"},
		{text: "H(5) * * * *"}, {text: "H() * * * *"}, {text: "h * * * *"},
		{text: "TZ=UTC * * * * *"}, {text: "CRON_TZ=Europe/Berlin 0 0 * * *"}, {text: "**/5 * * * *"}, {text: "00000 * * * *"},
		{text: "30-10 * * * *", lenient: true}, {text: "H/61 * * * *", lenient: true}, {text: "@every 1500ms", lenient: true},
	} {
		t.Run(test.text, func(t *testing.T) {
			_, parseErr := cron.Parse(test.text, "a/b")
			object := newObject(t, "CronTab", "", `{`+shortTemplate+`}`)
			object.Object["spec"].(map[string]any)["schedule"] = test.text
			_, err := create(t, namespace, object)
			if err != nil && !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
			if accepted, reads := err == nil, parseErr == nil; accepted != reads && accepted != test.lenient {
				t.Errorf("the API server says %v, internal/cron says %v", err, parseErr)
			}
			if test.lenient && (err != nil || parseErr == nil) {
				t.Errorf("it is no exception: the API server says %v, internal/cron says %v", err, parseErr)
			}
		})
	}
}
