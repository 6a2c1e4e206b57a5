package top

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

func ready(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message}}
}

// filled returns a model with some objects.
func filled() *model {
	m := &model{place: "here, namespace team", width: 80, height: 24, now: now}
	web := &vmv1alpha1.VirtualMachine{ObjectMeta: named("web"), Status: vmv1alpha1.VirtualMachineStatus{
		PrintableStatus: vmv1alpha1.StatusRunning, Server: &vmv1alpha1.Server{Addresses: []string{"10.1.0.2"}}, Conditions: ready("True", "Running", ""),
	}}
	db := &vmv1alpha1.VirtualMachine{ObjectMeta: named("db"), Status: vmv1alpha1.VirtualMachineStatus{
		PrintableStatus: vmv1alpha1.StatusStopped, Conditions: ready("True", "Stopped", "The machine is stopped"),
	}}
	db.Spec.Action = vmv1alpha1.ActionStopped
	demo := &clusterv1alpha1.Cluster{ObjectMeta: named("demo"), Status: clusterv1alpha1.ClusterStatus{
		Phase: clusterv1alpha1.PhaseProvisioning, Message: "The cluster is being provisioned",
	}}
	demo.Namespace = ""
	backup := &stablev1.CronTab{ObjectMeta: named("backup"), Spec: stablev1.CronTabSpec{Schedule: "@daily"}, Status: stablev1.CronTabStatus{
		NextScheduleTime: &metav1.Time{Time: now.Add(12 * time.Hour)}, Conditions: ready("True", "Scheduled", ""),
		LastRun: &stablev1.FinishedRun{Result: stablev1.RunSucceeded},
	}}
	app := &foov1alpha1.Foo{ObjectMeta: named("app"), Spec: foov1alpha1.FooSpec{Replicas: ptr.To[int32](3)}, Status: foov1alpha1.FooStatus{
		AvailableReplicas: 1, Conditions: ready("False", "Progressing", "1 of 3 replicas are available"),
	}}
	// A message may be written by anybody.
	event := &corev1.Event{
		ObjectMeta: named("event"), Type: "Warning", Reason: "Failed", Message: "one\ntwo\x1b[2J\u202e", LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		InvolvedObject: corev1.ObjectReference{Kind: "Foo", Name: "app"},
	}
	for section, objects := range [sectionCount][]client.Object{{web, db}, {demo}, {backup}, {app}, {event}} {
		m.show(section, rowsOf(section, objects, loads{web.UID: {cpu: 45, memory: math.NaN()}}, now), "")
	}
	return m
}

func TestView(t *testing.T) {
	want := `keelson top  here, namespace team                        2026-11-25 12:00:00 UTC
> MACHINE 2  STATUS   CPU            MEMORY  ADDRESS   AGE  MESSAGE
> db         Stopped  -              -       -         60m  The machine is stop…
  web        Running  [###...]  45%  -       10.1.0.2  60m
  CLUSTER 1  STATUS        VERSION  ENDPOINT  AGE  MESSAGE
  demo       Provisioning  -        -         60m  The cluster is being provisi…
  CRONTAB 1  STATUS     SCHEDULE  LAST       NEXT RUN  MESSAGE
  backup     Scheduled  @daily    Succeeded  in 12h
  FOO 1  STATUS       AVAILABLE  AGE  MESSAGE
  app    Progressing  1/3        60m  1 of 3 replicas are available
  EVENT 1  AGE  TYPE     REASON  MESSAGE
  foo/app  60s  Warning  Failed  one two [2J











s start  d delete  ↑↓ select  tab section  q quit`
	if diff := cmp.Diff(want, ansi.Strip(filled().view())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The screen is filled exactly, whatever its size and its content.
func TestViewSize(t *testing.T) {
	crowded, empty := filled(), &model{now: now}
	for section := range sectionCount {
		var many []row
		for i := range 100 {
			cells := make([]string, len(kinds[section].columns))
			cells[0], cells[len(cells)-1] = strings.Repeat("x", i), "\x1b[31m"
			many = append(many, row{uid: types.UID(fmt.Sprint(i)), name: strings.Repeat("界", i), cells: cells})
		}
		crowded.show(section, many, "")
		empty.show(section, nil, strings.Repeat("A long sentence. ", 20))
	}
	for _, m := range []*model{filled(), crowded, empty, {now: now}} {
		for _, size := range [][2]int{{80, 24}, {200, 60}, {20, 9}, {40, 12}, {1, 1}, {0, 0}, {80, 3}} {
			m.width, m.height = size[0], size[1]
			for focus := range sectionCount {
				m.choose(focus, 50)
				lines := strings.Split(m.view(), "\n")
				if len(lines) > max(m.height, 1) {
					t.Errorf("%v has %d lines", size, len(lines))
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > m.width {
						t.Errorf("%v has a line that is %d wide: %q", size, ansi.StringWidth(line), line)
					}
				}
				if selected := m.current(focus); m.height >= 24 && m.width >= 80 && selected >= 0 &&
					!strings.Contains(ansi.Strip(m.view()), "\n> ") {
					t.Errorf("%v does not show the selected row", size)
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	type outcome struct {
		Words       []string
		Interactive bool
		Quit        bool
		Delete      string
		Message     string
		Focus       int
	}
	for _, test := range []struct {
		name, keys string
		want       outcome
	}{
		{"the first machine is off", "s", outcome{Words: []string{"vm", "start"}}},
		{"and cannot be stopped", "x", outcome{Message: "stop does not apply: db is stopped"}},
		{"the second one is on", "down x", outcome{Words: []string{"vm", "stop"}}},
		{"restart", "j r", outcome{Words: []string{"vm", "restart"}}},
		{"console", "j c", outcome{Words: []string{"vm", "serial"}, Interactive: true}},
		{"ssh", "j l", outcome{Words: []string{"vm", "ssh"}, Interactive: true}},
		{"down into the next section", "j j t", outcome{Focus: clusters}},
		{"up again", "j j k x", outcome{Words: []string{"vm", "stop"}}},
		{"run a CronTab", "tab tab t", outcome{Words: []string{"crontab", "trigger"}, Focus: cronTabs}},
		{"suspend it", "tab tab x", outcome{Words: []string{"crontab", "suspend"}, Focus: cronTabs}},
		{"backwards to the events, which cannot be deleted", "shift+tab d y", outcome{Focus: events}},
		{"delete", "j d y", outcome{Delete: "web"}},
		{"do not delete", "j d n", outcome{}},
		{"a verb does not confirm", "j d x", outcome{}},
		{"quit", "q", outcome{Quit: true}},
		{"quit instead of a deletion", "d ctrl+c", outcome{Quit: true}},
		{"an unknown key", "z", outcome{}},
	} {
		m := filled()
		var last action
		for key := range strings.FieldsSeq(test.keys) {
			last = m.press(key)
		}
		got := outcome{Words: last.words, Interactive: last.interactive, Quit: last.quit, Message: m.message, Focus: m.focus}
		if last.remove {
			got.Delete = last.object.name
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}
}

// The selection stays with the object, and a confirmation is only for one that is still there.
func TestSelection(t *testing.T) {
	m := filled()
	m.press("j")
	web := m.sections[machines].rows[1]
	m.show(machines, []row{{uid: "new", name: "a"}, {uid: "newer", name: "b"}, web}, "")
	if at := m.current(machines); at != 2 {
		t.Errorf("the selected row is %d, want 2", at)
	}
	m.press("d")
	if !strings.Contains(ansi.Strip(m.view()), "Delete machine team/web? y: yes") {
		t.Errorf("no question in\n%s", m.view())
	}
	m.show(machines, []row{{uid: "new", name: "a"}}, "")
	if got := m.press("y"); got.remove {
		t.Errorf("an object is deleted that is gone: %+v", got)
	}
	if at := m.current(machines); at != 0 {
		t.Errorf("the selected row is %d, want 0", at)
	}
	m.show(machines, nil, "")
	for _, key := range []string{"s", "d", "y", "home", "end", "pgup", "pgdown", "j", "k"} {
		if got := m.press(key); got.words != nil || got.remove {
			t.Errorf("%s without an object: %+v", key, got)
		}
	}
}

// What cannot be shown is a sentence.
func TestProblems(t *testing.T) {
	resource := schema.GroupResource{Group: "cloudnative.tw", Resource: "virtualmachines"}
	for _, test := range []struct {
		section   int
		namespace string
		err       error
		want      string
	}{
		{machines, "team", apierrors.NewForbidden(resource, "", nil), "You may not list virtualmachines in team: ask an administrator."},
		{machines, "", apierrors.NewForbidden(resource, "", nil), "You may not list virtualmachines of all namespaces: ask an administrator."},
		{clusters, "", apierrors.NewForbidden(resource, "", nil), "You may not list clusters: ask an administrator."},
		{foos, "team", &meta.NoKindMatchError{}, "The API has no foos: their definition is not installed."},
		{foos, "team", apierrors.NewUnauthorized(""), "The API does not accept your credentials."},
		{foos, "team", &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/apis", Err: syscall.ECONNREFUSED}, "The API does not answer, trying again: connection refused"},
		{foos, "team", apierrors.NewInternalError(fmt.Errorf("broken")), "The foos cannot be read, trying again: "},
	} {
		s := source{section: test.section, resource: kinds[test.section].resource, namespace: test.namespace}
		if got := s.describe(test.err); !strings.HasPrefix(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	m := filled()
	m.show(machines, nil, "You may not list them.")
	if lines := strings.Split(ansi.Strip(m.view()), "\n"); lines[1] != "> MACHINE" || lines[2] != "  You may not list them." {
		t.Errorf("got\n%s", strings.Join(lines, "\n"))
	}
}

func TestBar(t *testing.T) {
	for percent, want := range map[float64]string{-3: "[......]  -3%", 0: "[......]   0%", 50: "[###...]  50%", 100: "[######] 100%", 250: "[######] 250%"} {
		if got := bar(percent); got != want {
			t.Errorf("%v: got %q, want %q", percent, got, want)
		}
	}
	if got := text(math.NaN()); got != "-" {
		t.Errorf("unknown: %q", got)
	}
}

// Only the latest events are kept.
func TestLatest(t *testing.T) {
	known := map[types.UID]client.Object{}
	var objects []client.Object
	for i := range maxEvents + 10 {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}, LastTimestamp: metav1.NewTime(now.Add(time.Duration(i) * time.Second))}
		objects, known[event.UID] = append(objects, event), event
	}
	got := latest(objects, known)
	if len(got) != maxEvents || len(known) != maxEvents || got[0].GetUID() != types.UID(fmt.Sprint(maxEvents+9)) {
		t.Errorf("%d shown, %d known, the first is %s", len(got), len(known), got[0].GetUID())
	}
}
