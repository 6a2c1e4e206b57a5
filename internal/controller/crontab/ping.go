package crontab

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// ping is a request to the URL of spec.ping for one event of a run.
type ping struct {
	// about is the identity of the CronTab.
	about  *stablev1.CronTab
	target *stablev1.Ping
	// run is the UID of the Job.
	run types.UID
	// body is sent as JSON.
	body pingBody
}

type pingBody struct {
	CronTab       string             `json:"cronTab"`
	Job           string             `json:"job"`
	ScheduledTime time.Time          `json:"scheduledTime"`
	Event         stablev1.PingEvent `json:"event"`
	Reason        string             `json:"reason,omitempty"`
	ExitCode      *int32             `json:"exitCode,omitempty"`
}

// newPings returns the ping for an event of a run; none if spec.ping does not ask for it.
func newPings(cronTab *stablev1.CronTab, event stablev1.PingEvent, r *run) []*ping {
	target := cronTab.Spec.Ping
	if target == nil || !slices.Contains(target.Events, event) {
		return nil
	}
	return []*ping{{
		about:  &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: cronTab.Namespace, Name: cronTab.Name, UID: cronTab.UID}},
		target: target, run: r.uid,
		body: pingBody{
			CronTab: cronTab.Namespace + "/" + cronTab.Name, Job: r.name, ScheduledTime: r.at.UTC(), Event: event,
			Reason: r.reason[:min(len(r.reason), 256)],
		},
	}}
}

// endPings returns the pings for the runs whose end the status of a CronTab does not record, in the order in which they ended. They are
// due after the update of exactly this status, so no end has two: the API server refuses another update of it.
func endPings(cronTab *stablev1.CronTab, runs []run, f *failure) []*ping {
	if cronTab.Spec.Ping == nil {
		return nil
	}
	ended := slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.phase == active || isEndRecorded(&cronTab.Status, &r) })
	slices.SortStableFunc(ended, func(a, b run) int { return a.finishTime.Compare(b.finishTime) })
	var pings []*ping
	for i := range ended {
		r := &ended[i]
		if r.phase == succeeded {
			pings = append(pings, newPings(cronTab, stablev1.PingSuccess, r)...)
			continue
		}
		failures := newPings(cronTab, stablev1.PingFailure, r)
		if f != nil && f.uid == r.uid { // of the others it is not known
			for _, one := range failures {
				one.body.ExitCode = f.exitCode
			}
		}
		pings = append(pings, failures...)
	}
	return pings
}

// isEndRecorded reports whether a status records the end of a run. A run that started and ended since the last update is not in
// status.active, and ended after lastRun.
func isEndRecorded(status *stablev1.CronTabStatus, r *run) bool {
	for _, ref := range status.Active {
		if ref.UID == r.uid {
			return false
		}
	}
	return status.LastRun != nil && !r.finishTime.Truncate(time.Second).After(status.LastRun.FinishTime.Time)
}

// errPingURL has no details: parts of the URL may be secret.
var errPingURL = errors.New("it is not an http or https URL without user name and password")

// pingURL returns the URL of a ping, in the form of healthchecks.io, for that of the check.
func pingURL(check string, p *ping) (*url.URL, error) {
	u, err := url.Parse(check)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, errPingURL
	}
	switch code := p.body.ExitCode; {
	case p.body.Event == stablev1.PingStart:
		u = u.JoinPath("start")
	case p.body.Event == stablev1.PingSuccess:
	case code != nil && *code >= 1 && *code <= 255:
		u = u.JoinPath(strconv.Itoa(int(*code)))
	default:
		u = u.JoinPath("fail")
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.Values{"rid": {string(p.run)}}.Encode()
	u.Fragment = ""
	return u, nil
}
