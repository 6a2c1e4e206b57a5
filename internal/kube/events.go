package kube

import (
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noteLimit is the maximum size of an event note in bytes.
const noteLimit = 1024

// Recorder records events about objects of one kind.
type Recorder struct {
	kind     schema.GroupVersionKind
	recorder events.EventRecorder
}

// NewRecorder returns a Recorder for objects of that kind.
func NewRecorder(kind schema.GroupVersionKind, recorder events.EventRecorder) *Recorder {
	return &Recorder{kind: kind, recorder: recorder}
}

// Normal records a Normal event. action is the verb for what the controller did, in camel case.
func (r *Recorder) Normal(about client.Object, reason, action, note string) {
	r.record(about, corev1.EventTypeNormal, reason, action, note)
}

// Warning records a Warning event.
func (r *Recorder) Warning(about client.Object, reason, action, note string) {
	r.record(about, corev1.EventTypeWarning, reason, action, note)
}

func (r *Recorder) record(about client.Object, kind, reason, action, note string) {
	if len(note) > noteLimit {
		const more = " ..."
		note = strings.ToValidUTF8(note[:noteLimit-len(more)], "") + more
	}
	// The reference has no resource version, so that events about different versions form one series.
	regarding := corev1.ObjectReference{
		APIVersion: r.kind.GroupVersion().String(),
		Kind:       r.kind.Kind,
		Namespace:  about.GetNamespace(),
		Name:       about.GetName(),
		UID:        about.GetUID(),
	}
	// client-go counts an event as a repetition if everything but the note is equal, and drops its note. The related object is the
	// same one, with a hash of the note, so that only events with the same note form a series.
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(note)) // never fails
	related := regarding
	related.FieldPath = fmt.Sprintf("note{%08x}", sum.Sum32())
	r.recorder.Eventf(&regarding, &related, kind, reason, action, "%s", note)
}
