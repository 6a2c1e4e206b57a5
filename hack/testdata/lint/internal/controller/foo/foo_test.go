package foo

import (
	"context"
	"testing"
	"time"

	_ "github.com/keelson-dev/keelson/internal/testing/env"
)

func TestReconcile(*testing.T) {
	_, _ = context.Background(), time.Now()
	time.Sleep(time.Second) // want: forbidigo
}
