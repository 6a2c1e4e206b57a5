package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

// The API rejects an event whose note has more than 1024 bytes, so it would be lost.
func TestNotesOfEventsAreBounded(t *testing.T) {
	for _, test := range []struct{ name, note, want string }{
		{"short", "It is there", "It is there"},
		{"with a format verb", "100 %s", "100 %s"},
		{"the longest", strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		{"a longer one", strings.Repeat("a", 1025), strings.Repeat("a", 1020) + " ..."},
		{"limit within a character", "a" + strings.Repeat("€", 400), "a" + strings.Repeat("€", 339) + " ..."},
	} {
		t.Run(test.name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			r := NewRecorder(corev1.SchemeGroupVersion.WithKind("Pod"), recorder)
			r.Warning(&corev1.Pod{}, "Reason", "Act", test.note)
			if got := <-recorder.Events; got != "Warning Reason "+test.want {
				t.Errorf("got %q, want the note %q", got, test.want)
			}
		})
	}
}
