package managers

import "testing"

func TestCrash(t *testing.T) {
	for _, test := range []struct{ name, log, want string }{
		{"nothing is said", "", ""},
		{"an error is none", `{"level":"error","msg":"Reconciler error","error":"panic: is only a word here"}` + "\n", ""},
		{"the stacks of one that was asked for them", "SIGQUIT: quit\n\ngoroutine 1 [select]:\nmain.main()\n", ""},
		{"a panic", "{}\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\n", "panic: runtime error: index out of range"},
		{"the runtime gives up", "{}\nfatal error: concurrent map writes\n", "fatal error: concurrent map writes"},
		{"a controller that was caught", `{"level":"error","msg":"Observed a panic"}` + "\n{}\n", `{"level":"error","msg":"Observed a panic"}`},
		{"the race detector", "WARNING: DATA RACE\nWrite at 0x1\n", "WARNING: DATA RACE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := crash(test.log); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
