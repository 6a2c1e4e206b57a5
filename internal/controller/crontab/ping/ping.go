package ping

import (
	"errors"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// Ping is a request to the URL of spec.ping for one event of a run.
type Ping struct {
	// About is the identity of the CronTab, and Target its spec.ping.
	About  *stablev1.CronTab
	Target *stablev1.Ping
	// Run is the UID of the Job.
	Run types.UID
	// Body is sent as JSON.
	Body Body
}

// Body is the body of the request.
type Body struct {
	CronTab       string             `json:"cronTab"`
	Job           string             `json:"job"`
	ScheduledTime time.Time          `json:"scheduledTime"`
	Event         stablev1.PingEvent `json:"event"`
	Reason        string             `json:"reason,omitempty"`
	ExitCode      *int32             `json:"exitCode,omitempty"`
}

// errURL has no details: parts of the URL may be secret.
var errURL = errors.New("it is not an http or https URL without user name and password")

// url returns the URL of the ping, in the form of healthchecks.io, for that of the check.
func (p *Ping) url(check string) (*url.URL, error) {
	u, err := url.Parse(check)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, errURL
	}
	switch code := p.Body.ExitCode; {
	case p.Body.Event == stablev1.PingStart:
		u = u.JoinPath("start")
	case p.Body.Event == stablev1.PingSuccess:
	case code != nil && *code >= 1 && *code <= 255:
		u = u.JoinPath(strconv.Itoa(int(*code)))
	default:
		u = u.JoinPath("fail")
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.Values{"rid": {string(p.Run)}}.Encode()
	u.Fragment = ""
	return u, nil
}
