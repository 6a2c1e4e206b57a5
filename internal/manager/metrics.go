package manager

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/internal/version"
)

// registerBuildInfo adds keelson_build_info to the registry, which is one for the
// whole process.
var registerBuildInfo = sync.OnceFunc(func() {
	info := version.Get()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keelson_build_info",
		Help: "Always 1; the labels have the version of Keelson, Go and Kubernetes.",
		ConstLabels: prometheus.Labels{
			"version": info.Keelson, "goversion": info.Go, "kubernetes": info.Kubernetes,
		},
	})
	gauge.Set(1)
	metrics.Registry.MustRegister(gauge)
})
