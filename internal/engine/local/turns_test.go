package local

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends []time.Duration // when each of the APIs is ready that start at the beginning
		want time.Duration   // how long the controllers wait
	}{
		{"nobody starts", nil, 0},
		{"one API", []time.Duration{time.Second}, time.Second},
		{"the slowest of them", []time.Duration{2 * time.Second, time.Second, 3 * time.Second}, 3 * time.Second},
		{"one that takes too long", []time.Duration{time.Minute}, yieldPatience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turn turns
				for _, end := range tt.ends {
					time.AfterFunc(end, turn.begin())
				}
				began := time.Now()
				turn.yield(t.Context())
				if waited := time.Since(began); waited != tt.want {
					t.Errorf("waited %s, want %s", waited, tt.want)
				}
				time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble, where it takes no time
				turn.yield(t.Context())
				if waited := time.Since(began); waited != tt.want+2*time.Minute {
					t.Errorf("waited again, after all were ready")
				}
			})
		})
	}
	t.Run("the context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var turn turns
			defer turn.begin()()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if turn.yield(ctx); time.Since(began) != time.Second {
				t.Errorf("waited %s", time.Since(began))
			}
		})
	})
}
