package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Writes are the API requests that change something, including dry runs and failures, by "VERB resource" or
// "VERB resource/subresource". Those that the API server refused, which cost as much, end with the status code.
type Writes map[string]float64

// Served returns the writes of c.Counted that kube-apiserver has served since its start, without those of c.Uncounted.
// Only one contestant runs at a time, so that all others are its own.
func (c *Cluster) Served(ctx context.Context) (Writes, error) {
	all, err := c.Requests(ctx)
	maps.DeleteFunc(all, isRead)
	return all, err
}

func isRead(name string, _ float64) bool {
	return strings.HasPrefix(name, "GET ") || strings.HasPrefix(name, "LIST ")
}

// Requests returns the same as Served with the reads; watches, which go on, are none.
func (c *Cluster) Requests(ctx context.Context) (Writes, error) {
	text, err := c.Observer.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain;version=0.0.4").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of kube-apiserver: %w", err)
	}
	return served(bytes.NewReader(text), c.Counted, c.Uncounted)
}

func served(text io.Reader, counted, uncounted []string) (Writes, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of kube-apiserver: %w", err)
	}
	all := Writes{}
	for _, metric := range metrics["apiserver_request_total"].GetMetric() {
		label := map[string]string{}
		for _, pair := range metric.GetLabel() {
			label[pair.GetName()] = pair.GetValue()
		}
		name := label["verb"] + " " + label["resource"]
		if label["subresource"] != "" {
			name += "/" + label["subresource"]
		}
		streams := label["verb"] == "WATCH" || label["verb"] == "CONNECT"
		if streams || !slices.Contains(counted, label["resource"]) || slices.Contains(uncounted, name) {
			continue
		}
		if label["code"] >= "400" {
			name += " (" + label["code"] + ")"
		}
		all[name] += metric.GetCounter().GetValue()
	}
	return all, nil
}

// Since returns the writes that came after earlier ones.
func (w Writes) Since(before Writes) Writes {
	grown := Writes{}
	for what, n := range w {
		if n > before[what] {
			grown[what] = n - before[what]
		}
	}
	return grown
}

// SetWrites sets the writes of a sample, and the figure "writes": how many there are for an object.
func (s *Sample) SetWrites(writes Writes) {
	s.Writes = writes
	s.Set("writes", writes.Sum()/float64(s.Size))
}

// Sum returns the number of all writes.
func (w Writes) Sum() (sum float64) {
	for _, n := range w {
		sum += n
	}
	return sum
}

// Writes lists the writes of all samples for an object.
func (all Samples) Writes() string {
	sum, objects := Writes{}, 0
	for _, s := range all {
		if s.Writes != nil {
			objects += s.Size
		}
		for what, n := range s.Writes {
			sum[what] += n
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", what, sum[what]/float64(objects)))
	}
	return strings.Join(parts, ", ")
}

// AwaitQuiet waits until nothing has been written for some time. It returns all writes until then, and when the last was
// noticed.
func (c *Cluster) AwaitQuiet(ctx context.Context, quiet time.Duration) (written Writes, last time.Time, err error) {
	last = time.Now()
	err = Until(ctx, PollInterval, func() error {
		asked := time.Now()
		now, err := c.Served(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(now, written) {
			written, last = now, time.Now()
		}
		if asked.Sub(last) < quiet {
			return fmt.Errorf("there are still writes: %v", written)
		}
		return nil
	})
	return written, last, err
}
