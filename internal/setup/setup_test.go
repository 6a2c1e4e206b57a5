package setup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		calls, ended := 0, make(chan error)
		go func() { ended <- Every(time.Minute, func(context.Context) { calls++ }).Start(ctx) }()
		for _, want := range []int{1, 1, 2, 2, 3} {
			synctest.Wait()
			if calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
			<-time.After(30*time.Second + time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
