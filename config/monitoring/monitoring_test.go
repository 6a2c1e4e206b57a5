// Package monitoring_test checks the alerts and the dashboard: that they are what Prometheus and Grafana take, that every
// metric in them is on one of the pages of metrics, which a test of internal/manager compares with the program, and that every
// alert has a runbook.
package monitoring_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/files"
)

type rules struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file rules
	if err := yaml.UnmarshalStrict([]byte(files.Read(t, "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

// promtool runs it; make test puts it into bin/.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := filepath.Abs("../../bin/promtool")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if path, err = exec.LookPath("promtool"); err != nil {
			t.Skip("SKIP: promtool is not there: run hack/promtool.sh bin/promtool")
		}
	}
	if output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

func TestAlertsAreRules(t *testing.T) { promtool(t, "check", "rules", "alerts.yaml") }

func TestConfigurationOfPrometheus(t *testing.T) { promtool(t, "check", "config", "prometheus.yml") }

func TestAlertsFire(t *testing.T) {
	promtool(t, "test", "rules", "alerts_test.yaml")
	tests := files.Read(t, "alerts_test.yaml")
	for _, alert := range alerts(t) {
		if !strings.Contains(tests, "exp_samples:\n    - {labels: \"ALERTS{alertname='"+alert.Alert+"',") {
			t.Errorf("no test shows that %s fires", alert.Alert)
		}
	}
}

// Every alert says how bad it is, what it is about, and where its section of the runbooks is; every section has its alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	var sections, names []string
	for _, heading := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(files.Read(t, "../../docs/runbooks.md"), -1) {
		sections = append(sections, heading[1])
	}
	for _, alert := range alerts(t) {
		names = append(names, alert.Alert)
		if !slices.Contains([]string{"critical", "warning"}, alert.Labels["severity"]) {
			t.Errorf("%s has the severity %q", alert.Alert, alert.Labels["severity"])
		}
		for _, annotation := range []string{"summary", "description"} {
			if alert.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", alert.Alert, annotation)
			}
		}
		if want := "/docs/runbooks.md#" + strings.ToLower(alert.Alert); !strings.HasSuffix(alert.Annotations["runbook_url"], want) {
			t.Errorf("%s has the runbook %s, want %s", alert.Alert, alert.Annotations["runbook_url"], want)
		}
	}
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("alerts, and sections of docs/runbooks.md (-alerts +sections):\n%s", diff)
	}
}

type dashboard struct {
	Annotations struct {
		List []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(files.Read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Fatal("there are no panels")
	}
	return d
}

// queries returns those of the dashboard, as Prometheus gets them.
func (d dashboard) queries() []string {
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "any")
	var all []string
	for _, annotation := range d.Annotations.List {
		all = append(all, variables.Replace(annotation.Expr))
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	return all
}

func TestDashboardAsksWhatPrometheusUnderstands(t *testing.T) {
	var recorded rules
	recorded.Groups = []group{{Name: "dashboard"}}
	for i, query := range readDashboard(t).queries() {
		if strings.Contains(query, "$") {
			t.Errorf("a variable that the dashboard does not have: %s", query)
		}
		// promtool refuses a rule that is there twice; a label makes each another.
		recorded.Groups[0].Rules = append(recorded.Groups[0].Rules,
			rule{Record: "dashboard:query", Expr: query, Labels: map[string]string{"query": string(rune('a'+i/26)) + string(rune('a'+i%26))}})
	}
	raw, err := yaml.Marshal(recorded)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

func TestPanels(t *testing.T) {
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, panel := range readDashboard(t).Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Title == "" || panel.Type != "row" && panel.Description == "" {
			t.Errorf("panel %d has no title, or no description", panel.ID)
		}
		refs := map[string]bool{}
		for _, target := range panel.Targets {
			if refs[target.RefID] {
				t.Errorf("%s: two queries are called %s", panel.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q is where %q is, or too far to the right", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
}

// metricName is a word in a query that is followed by labels, a range, or an operator: functions have a parenthesis, and
// labels stand in parentheses or braces, which are cut out before.
var (
	quoted     = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	grouping   = regexp.MustCompile(`\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)`)
	selector   = regexp.MustCompile(`\{[^}]*\}`)
	metricName = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\b\s*\(?`)
	duration   = regexp.MustCompile(`\[[^\]]*\]`)
)

func metricsIn(query string) []string {
	for _, cut := range []*regexp.Regexp{quoted, selector, duration, grouping} {
		query = cut.ReplaceAllString(query, " ")
	}
	var names []string
	for _, word := range metricName.FindAllString(query, -1) {
		name := strings.TrimSpace(word)
		if strings.HasSuffix(name, "(") || slices.Contains([]string{"and", "or", "unless", "bool", "offset"}, name) {
			continue
		}
		names = append(names, name)
	}
	return names
}

func TestMetricsIn(t *testing.T) {
	query := `histogram_quantile(0.99, sum by (le, x_seconds) (rate(a_seconds_bucket{job=~"$job",b!="c"}[5m]) and on (job) d_info)) > 5 unless e == 1 or vector(0)`
	if diff := cmp.Diff([]string{"a_seconds_bucket", "d_info", "e"}, metricsIn(query)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// Alerts and dashboard ask for metrics that there are.
func TestEveryMetricExists(t *testing.T) {
	known := map[string]bool{"ALERTS": true} // Prometheus has it
	pages := files.Read(t, "../../docs/reference/metrics.md") + files.Read(t, "../../docs/internals/metrics.md")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z][a-z0-9_]*)` \\| ([a-z]+) \\|").FindAllStringSubmatch(pages, -1) {
		if row[2] != "histogram" {
			known[row[1]] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[row[1]+suffix] = true
		}
	}
	for _, collector := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			collector.Describe(descs)
		}()
		for desc := range descs {
			known[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String())[1]] = true
		}
	}
	asked := 0
	check := func(where, query string) {
		for _, name := range metricsIn(query) {
			asked++
			if !known[name] {
				t.Errorf("%s asks for %s, which there is not", where, name)
			}
		}
	}
	for _, alert := range alerts(t) {
		check(alert.Alert, alert.Expr)
	}
	for _, query := range readDashboard(t).queries() {
		check("the dashboard", query)
	}
	if asked < 60 {
		t.Errorf("only %d metrics were found in the queries", asked)
	}
}

// The component builds, and has what it says.
func TestComponent(t *testing.T) {
	kubectl, err := filepath.Abs("../../bin/kubectl")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay := t.TempDir()
	component, err := filepath.Rel(overlay, here)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte("namespace: elsewhere\ncomponents: ["+component+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), kubectl, "kustomize", overlay).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v", err)
	}
	kinds := map[string]int{}
	for document := range strings.SplitSeq(string(output), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		kinds[object.Kind]++
		if object.Metadata.Namespace != "elsewhere" {
			t.Errorf("%s is in the namespace %q", object.Kind, object.Metadata.Namespace)
		}
	}
	want := map[string]int{"ConfigMap": 1, "NetworkPolicy": 1, "PrometheusRule": 1, "Service": 1, "ServiceMonitor": 1}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("objects of the component (-want +got):\n%s", diff)
	}
}
