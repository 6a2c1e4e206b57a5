package ping

import (
	"errors"
	"testing"

	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestURL(t *testing.T) {
	const base = "https://hc.example/4f1d"
	for _, test := range []struct {
		name, check string
		event       stablev1.PingEvent
		exitCode    *int32
		want        string
	}{
		{"start", base, stablev1.PingStart, nil, base + "/start?rid=run"},
		{"success", base, stablev1.PingSuccess, nil, base + "?rid=run"},
		{"failure", base, stablev1.PingFailure, nil, base + "/fail?rid=run"},
		{"an exit code", base, stablev1.PingFailure, ptr.To[int32](137), base + "/137?rid=run"},
		{"exit code 0, such as of a deadline", base, stablev1.PingFailure, ptr.To[int32](0), base + "/fail?rid=run"},
		{"an exit code of Windows", base, stablev1.PingFailure, ptr.To[int32](-1073741510), base + "/fail?rid=run"},
		{"a slash at the end", base + "/", stablev1.PingStart, nil, base + "/start?rid=run"},
		{"an escaped path", "https://hc.example/a%2Fb", stablev1.PingStart, nil, "https://hc.example/a%2Fb/start?rid=run"},
		{"a query and a fragment", base + "?create=1#top", stablev1.PingStart, nil, base + "/start?create=1&rid=run"},
		{"no path", "http://hc.example:8000", stablev1.PingStart, nil, "http://hc.example:8000/start?rid=run"},
		{"another scheme", "ftp://hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"no scheme", "hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"no host", "https:///4f1d", stablev1.PingStart, nil, ""},
		{"user info", "https://user@hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"nothing", "", stablev1.PingStart, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, err := (&Ping{Run: "run", Body: Body{Event: test.event, ExitCode: test.exitCode}}).url(test.check)
			switch {
			case test.want == "" && !errors.Is(err, errURL):
				t.Errorf("got %v, %v", u, err)
			case test.want != "" && (err != nil || u.String() != test.want):
				t.Errorf("got %v, %v, want %s", u, err, test.want)
			}
		})
	}
}
