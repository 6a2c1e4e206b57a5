package setup

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var calls atomic.Int32
		ended := make(chan error)
		go func() { ended <- Every(time.Minute, func(context.Context) { calls.Add(1) }).Start(ctx) }()
		for _, want := range []int32{1, 1, 2, 2, 3} {
			synctest.Wait()
			if got := calls.Load(); got != want {
				t.Errorf("%d calls, want %d", got, want)
			}
			<-time.After(30*time.Second + time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
