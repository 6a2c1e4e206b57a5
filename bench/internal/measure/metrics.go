package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the metrics of a program at one moment.
type Metrics map[string]*dto.MetricFamily

// Scrape reads metrics in the text format of Prometheus from a URL.
func Scrape(ctx context.Context, client *http.Client, url string) (_ Metrics, err error) {
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
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // the status says enough without it
		return nil, fmt.Errorf("get %s: %s: %s", url, response.Status, text)
	}
	return ParseMetrics(response.Body)
}

// ParseMetrics reads metrics in the text format of Prometheus.
func ParseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

// Value returns the sum of a metric, 0 if there is none of that name.
func (m Metrics) Value(name string) float64 {
	sum := 0.0
	for _, value := range m.By(name) {
		sum += value
	}
	return sum
}

// By returns the values of a counter or gauge, added up by the values of the given labels, which are joined with
// spaces. Histograms count as the number of their samples.
func (m Metrics) By(name string, labels ...string) map[string]float64 {
	sums := map[string]float64{}
	family := m[name]
	for _, metric := range family.GetMetric() {
		values := make([]string, len(labels))
		for _, pair := range metric.GetLabel() {
			if i := slices.Index(labels, pair.GetName()); i >= 0 {
				values[i] = pair.GetValue()
			}
		}
		sums[strings.Join(values, " ")] += number(metric)
	}
	return sums
}

func number(metric *dto.Metric) float64 {
	switch {
	case metric.GetCounter() != nil:
		return metric.GetCounter().GetValue()
	case metric.GetGauge() != nil:
		return metric.GetGauge().GetValue()
	case metric.GetUntyped() != nil:
		return metric.GetUntyped().GetValue()
	case metric.GetHistogram() != nil:
		return float64(metric.GetHistogram().GetSampleCount())
	default:
		return float64(metric.GetSummary().GetSampleCount())
	}
}

// Increase returns by how much each of the sums of By has grown, without those that have not.
func Increase(before, after map[string]float64) map[string]float64 {
	grown := maps.Clone(after)
	for key, value := range before {
		grown[key] -= value
	}
	maps.DeleteFunc(grown, func(_ string, value float64) bool { return value == 0 })
	return grown
}
