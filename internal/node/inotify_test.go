package node

import (
	"strings"
	"testing"
)

func TestInotifyWarning(t *testing.T) {
	if got := inotifyWarning(29, 29); got != "" {
		t.Errorf("as many as needed: %s", got)
	}
	const want = "29 more inotify instances are needed, and this user may have 28, so a node may not become ready: `sysctl -w fs.inotify.max_user_instances="
	if got := inotifyWarning(29, 28); !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
	for range 200 { // more than the usual limit
		if got := countInotify(1); got != 1 {
			t.Fatalf("%d instances", got)
		}
	}
}
