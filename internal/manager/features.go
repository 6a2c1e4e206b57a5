package manager

import (
	"os"

	clientfeatures "k8s.io/client-go/features"
)

// This makes client-go fill caches by a list and a watch from there, in this process.
//
// Its default is one watch that sends the present objects first. The API server ends that part with a bookmark, and
// sends bookmarks once a second: every start of the manager, and every takeover of a standby that was cut off, would
// wait up to 1.25 s for nothing (measured: 1.1 s of a start of 1.3 s). A list of what is in the server's own cache
// costs it about the same. The variable with which client-go lets a user decide still wins.
//
// It is an init function because client-go takes other gates only before the first client asks for one.
func init() {
	if _, decided := os.LookupEnv("KUBE_FEATURE_" + string(clientfeatures.WatchListClient)); !decided {
		clientfeatures.ReplaceFeatureGates(withoutWatchList{clientfeatures.FeatureGates()})
	}
}

// withoutWatchList is another set of gates with WatchListClient off.
type withoutWatchList struct{ clientfeatures.Gates }

// Enabled implements clientfeatures.Gates.
func (g withoutWatchList) Enabled(feature clientfeatures.Feature) bool {
	return feature != clientfeatures.WatchListClient && g.Gates.Enabled(feature)
}
