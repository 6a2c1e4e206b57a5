package manager

import (
	"os"

	clientfeatures "k8s.io/client-go/features"
)

// init makes client-go fill caches with a list and a subsequent watch.
//
// The default is one watch that first sends the existing objects, terminated by a bookmark. The API server sends
// bookmarks once a second, so every start of the manager, and every takeover by a standby that was disconnected,
// would wait up to 1.25 s (measured: 1.1 s of a start of 1.3 s). A list from the watch cache costs the server about
// the same. The environment variable of the feature gate takes precedence.
//
// It is an init function because client-go accepts other feature gates only before the first client reads them.
func init() {
	if _, decided := os.LookupEnv("KUBE_FEATURE_" + string(clientfeatures.WatchListClient)); !decided {
		clientfeatures.ReplaceFeatureGates(withoutWatchList{clientfeatures.FeatureGates()})
	}
}

// withoutWatchList wraps feature gates and turns WatchListClient off.
type withoutWatchList struct{ clientfeatures.Gates }

// Enabled implements clientfeatures.Gates.
func (g withoutWatchList) Enabled(feature clientfeatures.Feature) bool {
	return feature != clientfeatures.WatchListClient && g.Gates.Enabled(feature)
}
