package manager

import (
	"runtime/debug"
	"testing"
)

func TestSetGCPercent(t *testing.T) {
	const users = 77
	for _, tc := range []struct {
		name    string
		decided bool
		want    int
	}{
		{"what the user has set stays", true, users},
		{"else garbage is collected sooner", false, gcPercent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := debug.SetGCPercent(users)
			t.Cleanup(func() { debug.SetGCPercent(before) })
			setGCPercent(tc.decided)
			if got := debug.SetGCPercent(before); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
