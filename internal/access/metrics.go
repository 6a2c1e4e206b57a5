package access

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var sessions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "keelson_access_sessions",
	Help: "Open sessions with machines and Clusters through the Kubernetes API, by kind: console, log, portforward, screen, screenshot or proxy.",
}, []string{"kind"})

// RegisterMetrics registers the metrics in the global registry of the process.
var RegisterMetrics = sync.OnceFunc(func() { metrics.Registry.MustRegister(sessions) })
