package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// A watch that ends because the manager stops is not logged as an error; any other is.
func TestWatchFailed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stopped bool
		want    int
	}{
		{"the manager is running", false, 1},
		{"the manager is stopping", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := 0
			logger := funcr.New(func(string, string) { lines++ }, funcr.Options{})
			ctx, stop := context.WithCancel(logr.NewContext(klog.NewContext(t.Context(), logger), logger))
			defer stop()
			if tc.stopped {
				stop()
			}
			WatchFailed(ctx, toolscache.NewReflectorWithOptions(nil, nil, nil, toolscache.ReflectorOptions{Name: "test"}), errors.New("no connection"))
			if lines != tc.want {
				t.Errorf("%d lines in the log, want %d", lines, tc.want)
			}
		})
	}
}
