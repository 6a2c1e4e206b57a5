package manager

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

var update = flag.Bool("update", false, "write the golden files anew")

// metricsPages have every metric: the first those of Keelson, the second those of its libraries.
var metricsPages = []string{"../../docs/reference/metrics.md", "../../docs/internals/metrics.md"}

// metric is a row of a page: what there is to know of a metric.
type metric struct{ kind, labels, help string }

func (m metric) row(name string) string {
	return fmt.Sprintf("| `%s` | %s | %s | %s |", name, m.kind, m.labels, m.help)
}

var metricRow = regexp.MustCompile("(?m)^\\| `([a-z][a-z0-9_]*)` \\| ([a-z]*) \\| ([^|]*) \\| ([^|]*) \\|$")

// documentedMetrics returns the metrics on the pages.
func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	documented := map[string]metric{}
	for _, page := range metricsPages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range metricRow.FindAllStringSubmatch(string(raw), -1) {
			if _, twice := documented[row[1]]; twice {
				t.Errorf("%s is on the pages twice", row[1])
			}
			documented[row[1]] = metric{kind: row[2], labels: row[3], help: row[4]}
		}
	}
	return documented
}

// updateMetrics replaces the rows of the pages with those of the program, and appends new ones to the first page: move them below their heading.
func updateMetrics(t *testing.T, described, documented map[string]metric) {
	t.Helper()
	for i, path := range metricsPages {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := metricRow.ReplaceAllStringFunc(string(raw), func(row string) string {
			name := metricRow.FindStringSubmatch(row)[1]
			if m, ok := described[name]; ok {
				return m.row(name)
			}
			return row
		})
		for _, name := range slices.Sorted(maps.Keys(described)) {
			if _, ok := documented[name]; i == 0 && !ok {
				page += described[name].row(name) + "\n"
			}
		}
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
	}
}

// describedMetrics returns everything that is in the registry of a manager with all controllers, but those of the Go
// runtime and of the process, which are the same everywhere.
func describedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	o := newTestOptions(t, env.Namespace(t))
	o.HealthAddress, o.MetricsAddress = Off, Off
	o.StateDir, o.Machines.Drivers = t.TempDir(), []string{fake.Name}
	if _, err := New(env.Config(t), o); err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{([\w,]*)\}\}$`)
	constant := regexp.MustCompile(`(\w+)="`)
	described := map[string]metric{}
	for desc := range descsOf(metrics.Registry.(prometheus.Collector)) {
		found := form.FindStringSubmatch(desc.String())
		if found == nil {
			t.Errorf("a metric of another form: %s", desc)
			continue
		}
		name := found[1]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var help string
		if _, err := fmt.Sscanf(found[2], "%q", &help); err != nil {
			t.Errorf("the help of %s: %v", name, err)
		}
		labels := slices.DeleteFunc(strings.Split(found[4], ","), func(label string) bool { return label == "" })
		for _, label := range constant.FindAllStringSubmatch(found[3], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		help = strings.ReplaceAll(strings.Join(strings.Fields(help), " "), "|", "or")
		described[name] = metric{labels: strings.Join(labels, ", "), help: help}
	}
	return described
}

func descsOf(collector prometheus.Collector) <-chan *prometheus.Desc {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		collector.Describe(descs)
	}()
	return descs
}

// The pages have every metric of a manager with all controllers, and no other: its type, its labels and its help. With
// -update the pages are changed; new metrics come to docs/reference/metrics.md, beside those with similar names.
func TestPageHasEveryMetric(t *testing.T) {
	documented := documentedMetrics(t)
	described := describedMetrics(t)
	kinds := knownKinds(t)
	for name, m := range described {
		if m.kind = kinds[name]; m.kind == "" {
			// It is read from objects, of which there are none here: TestLongConditionsAndEventsOfEveryKind has some.
			m.kind = documented[name].kind
		}
		described[name] = m
	}
	if *update {
		updateMetrics(t, described, documented)
		documented = documentedMetrics(t)
	}
	if diff := cmp.Diff(described, documented, cmp.AllowUnexported(metric{})); diff != "" {
		t.Errorf("metrics (-program +pages), see the flag -update of this test:\n%s", diff)
	}
	for name, m := range documented {
		if !slices.Contains([]string{"counter", "gauge", "histogram", "summary"}, m.kind) {
			t.Errorf("%s has no type on the page", name)
		}
		ours := strings.HasPrefix(name, "keelson_") || strings.HasPrefix(name, "crontab_")
		if counts := strings.HasSuffix(name, "_total"); ours && counts != (m.kind == "counter") {
			t.Errorf("%s is a %s: counters, and no others, end with _total", name, m.kind)
		}
	}
}

// checkKinds compares the types on the pages with those of the program, in which there is an object of each kind.
func checkKinds(t *testing.T, got map[string]string) {
	t.Helper()
	documented := documentedMetrics(t)
	want := map[string]string{}
	for name, m := range documented {
		want[name] = m.kind
	}
	for name := range got {
		if want[name] == "" {
			delete(got, name) // of the Go runtime and of the process
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types of metrics (-pages +program):\n%s", diff)
	}
}

// knownKinds returns the types of the metrics that have a value at the moment, and of those that will have one for each
// value of their labels. All others are read from objects, and have a type when there is one.
func knownKinds(t *testing.T) map[string]string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, family := range families {
		kinds[family.GetName()] = strings.ToLower(family.GetType().String())
	}
	// The registry hands out no collectors.
	field := reflect.ValueOf(metrics.Registry).Elem().FieldByName("collectorsByID")
	for _, collector := range *(*map[uint64]prometheus.Collector)(field.Addr().UnsafePointer()) {
		kind := ""
		switch collector.(type) {
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.GaugeVec:
			kind = "gauge"
		case *prometheus.HistogramVec:
			kind = "histogram"
		default:
			continue
		}
		for desc := range descsOf(collector) {
			kinds[nameForm.FindStringSubmatch(desc.String())[1]] = kind
		}
	}
	return kinds
}

// nameForm finds the name in what a Desc says of itself: there is no other way to it.
var nameForm = regexp.MustCompile(`^Desc\{fqName: "(\w+)"`)
