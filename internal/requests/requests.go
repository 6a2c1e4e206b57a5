// Package requests has the values of the fields <verb>RequestedAt, each of which requests one thing once.
package requests

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// At returns the value of a field <verb>RequestedAt in whole seconds, as a status stores it; zero if it is not set.
func At(requested *metav1.Time) time.Time {
	if requested == nil {
		return time.Time{}
	}
	return requested.Truncate(time.Second)
}

// Token returns the value of a field <verb>RequestedAt as text; empty if it is not set.
func Token(requested *metav1.Time) string {
	at := At(requested)
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// Next returns the value of a field <verb>RequestedAt for a request now. It is later than the values of earlier requests, which
// may be nil, because a value that was used before requests nothing.
func Next(now time.Time, used ...*metav1.Time) metav1.Time {
	at := now.Truncate(time.Second)
	for _, last := range used {
		if last := At(last); !at.After(last) {
			at = last.Add(time.Second)
		}
	}
	return metav1.NewTime(at)
}
