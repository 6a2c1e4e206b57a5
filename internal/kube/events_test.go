package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
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

// sink has the notes of the stored events, and of those that were observed again.
type sink struct {
	mu               sync.Mutex
	stored, repeated []string
	written          chan struct{}
}

func (s *sink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = append(s.stored, event.Note)
	s.written <- struct{}{}
	return event, nil
}

func (s *sink) Update(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.Patch(ctx, event, nil)
}

func (s *sink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeated = append(s.repeated, event.Note)
	s.written <- struct{}{}
	return event, nil
}

// An event is a repetition only of one that says the same.
func TestEventsWithOtherNotesAreNoRepetitions(t *testing.T) {
	s := &sink{written: make(chan struct{}, 4)}
	broadcaster := events.NewBroadcaster(s)
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(corev1.SchemeGroupVersion.WithKind("Pod"), broadcaster.NewRecorder(scheme.Scheme, "test"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	for _, note := range []string{"Created a", "Created b", "Created c", "Created a"} {
		pod.ResourceVersion += "1"
		r.Normal(pod, "Created", "Create", note)
	}
	for range 4 {
		select {
		case <-s.written:
		case <-time.After(time.Minute):
			t.Fatal("An event is not written after a minute")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.stored)
	repeated := slices.Compact(s.repeated) // the broadcaster writes each series once more when it has started
	if diff := cmp.Diff([][]string{{"Created a", "Created b", "Created c"}, {"Created a"}}, [][]string{s.stored, repeated}); diff != "" {
		t.Errorf("stored and repeated events (-want +got):\n%s", diff)
	}
}
