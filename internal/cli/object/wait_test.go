package object

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The error of a wait that ends early has the last line, and not the words of the context, also if a request was in progress.
func TestUntilSaysWhyItEnded(t *testing.T) {
	pending := func(context.Context) (bool, string, error) { return false, "demo: Pending", nil }
	if err := Until(t.Context(), time.Millisecond, io.Discard, pending); err == nil || err.Error() != "not within 1ms; last: demo: Pending" {
		t.Errorf("after the timeout: %v", err)
	}
	for name, fails := range map[string]bool{"between two requests": false, "during a request": true} {
		ctx, interrupt := context.WithCancel(t.Context())
		looks := 0
		err := Until(ctx, time.Minute, io.Discard, func(ctx context.Context) (bool, string, error) {
			if looks++; looks == 1 {
				return pending(ctx)
			}
			interrupt()
			if fails {
				return false, "", fmt.Errorf("get Cluster demo: %w", context.Canceled)
			}
			return pending(ctx)
		})
		if err == nil || err.Error() != "interrupted; last: demo: Pending" {
			t.Errorf("interrupted %s: %v", name, err)
		}
	}
	failing := func(context.Context) (bool, string, error) { return false, "", io.ErrUnexpectedEOF }
	if err := Until(t.Context(), time.Minute, io.Discard, failing); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("another error: %v", err)
	}
}
