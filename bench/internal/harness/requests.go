package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the metrics of a program at one moment.
type Metrics map[string]*dto.MetricFamily

// scrape reads metrics in the text format of Prometheus.
func scrape(ctx context.Context, client *http.Client, url string) (_ Metrics, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	return parseMetrics(response.Body)
}

func parseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

// By returns the values of a counter or gauge, added up by the values of labels, which are joined with spaces. A histogram
// counts as the number of its observations.
func (m Metrics) By(name string, labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for _, metric := range m[name].GetMetric() {
		values := make([]string, len(labels))
		for _, pair := range metric.GetLabel() {
			if i := slices.Index(labels, pair.GetName()); i >= 0 {
				values[i] = pair.GetValue()
			}
		}
		sums[strings.Join(values, " ")] += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
			metric.GetUntyped().GetValue() + float64(metric.GetHistogram().GetSampleCount())
	}
	return sums
}

// Value returns the sum of a counter or gauge over all labels.
func (m Metrics) Value(name string) float64 { return m.By(name)[""] }

// Requests are API requests by "VERB resource" or "VERB resource/subresource". Those that the API server refused, which
// cost as much, end with the status code. The ends of watches do not count.
type Requests map[string]float64

// Served returns the requests about c.Counted that kube-apiserver has served since its start, without those of
// c.Uncounted. Only one contestant runs at a time, so that all others are its own.
func (c *Cluster) Served(ctx context.Context) (Requests, error) {
	metrics, err := scrape(ctx, c.Observer.HTTP, c.Config.Host+"/metrics")
	if err != nil {
		return nil, err
	}
	return served(metrics, c.Counted, c.Uncounted), nil
}

func served(metrics Metrics, counted, uncounted []string) Requests {
	all := Requests{}
	for what, n := range metrics.By("apiserver_request_total", "code", "verb", "resource", "subresource") {
		parts := strings.Fields(what) // the last is missing without a subresource
		if len(parts) < 3 || parts[1] == "WATCH" || !slices.Contains(counted, parts[2]) {
			continue
		}
		name := parts[1] + " " + strings.Join(parts[2:], "/")
		if slices.Contains(uncounted, name) {
			continue
		}
		if parts[0] >= "400" {
			name += " (" + parts[0] + ")"
		}
		all[name] += n
	}
	return all
}

// Since returns the requests that came after earlier ones.
func (r Requests) Since(before Requests) Requests {
	grown := Requests{}
	for what, n := range r {
		if n > before[what] {
			grown[what] = n - before[what]
		}
	}
	return grown
}

// Writes returns the requests that change something, including dry runs and failures.
func (r Requests) Writes() Requests {
	writes := maps.Clone(r)
	maps.DeleteFunc(writes, func(what string, _ float64) bool {
		verb, _, _ := strings.Cut(what, " ")
		return slices.Contains([]string{"GET", "LIST", "CONNECT"}, verb)
	})
	return writes
}

// Total returns the number of requests.
func (r Requests) Total() float64 {
	sum := 0.0
	for _, n := range r {
		sum += n
	}
	return sum
}

// Each lists the requests divided by n.
func (r Requests) Each(n int) string {
	if len(r) == 0 {
		return "none"
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", what, r[what]/float64(n)))
	}
	return strings.Join(parts, ", ")
}

// Requests returns the requests of all samples of a contestant, and how many objects they were for.
func (all Samples) Requests(contestant string) (sum Requests, objects int) {
	sum = Requests{}
	for _, s := range all {
		if s.Contestant == contestant && s.Requests != nil {
			objects += s.Size
			for what, n := range s.Requests {
				sum[what] += n
			}
		}
	}
	return sum, objects
}

// AwaitQuiet waits until nothing has been written for some time. It returns all requests until then, and when the last
// write was noticed.
func (c *Cluster) AwaitQuiet(ctx context.Context, quiet time.Duration) (all Requests, last time.Time, err error) {
	var written Requests
	last = time.Now()
	err = Until(ctx, pollInterval, func() error {
		if all, err = c.Served(ctx); err != nil {
			return err
		}
		if now := all.Writes(); !maps.Equal(now, written) {
			written, last = now, time.Now()
		}
		if time.Since(last) < quiet {
			return fmt.Errorf("there are still writes: %v", written)
		}
		return nil
	})
	return all, last, err
}
