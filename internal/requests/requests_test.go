package requests

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequests(t *testing.T) {
	at := func(text string) *metav1.Time {
		if text == "" {
			return nil
		}
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return &metav1.Time{Time: parsed}
	}
	now := at("2026-03-04T12:00:00.5Z").Time
	for _, test := range []struct{ last, answered, next, token string }{
		{"", "", "2026-03-04T12:00:00Z", ""},
		{"2026-03-04T11:59:59Z", "", "2026-03-04T12:00:00Z", "2026-03-04T11:59:59Z"},
		{"2026-03-04T12:00:00Z", "", "2026-03-04T12:00:01Z", "2026-03-04T12:00:00Z"},
		{"2026-03-04T13:00:00+01:00", "", "2026-03-04T12:00:01Z", "2026-03-04T12:00:00Z"},
		{"2026-03-04T12:00:07.9Z", "", "2026-03-04T12:00:08Z", "2026-03-04T12:00:07Z"},
		{"", "2026-03-04T12:00:07Z", "2026-03-04T12:00:08Z", ""},
		{"2026-03-04T12:00:03Z", "2026-03-04T12:00:02Z", "2026-03-04T12:00:04Z", "2026-03-04T12:00:03Z"},
	} {
		next := Next(now, at(test.last), at(test.answered))
		if got := Token(&next); got != test.next {
			t.Errorf("after %q and %q: the next request is %s, want %s", test.last, test.answered, got, test.next)
		}
		if got := Token(at(test.last)); got != test.token {
			t.Errorf("the token of %q is %q, want %q", test.last, got, test.token)
		}
	}
}
