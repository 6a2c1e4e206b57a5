package foo

import (
	"context"
	"syscall"
	"testing"
	"time"

	_ "github.com/keelson-dev/keelson/internal/testing/env"
)

func TestReconcile(*testing.T) {
	_, _ = context.Background(), time.Now()
	time.Sleep(time.Second)              // want: forbidigo
	_ = syscall.Kill(0, syscall.SIGKILL) // want: forbidigo
}
