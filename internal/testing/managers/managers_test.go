package managers

import "testing"

func TestCrash(t *testing.T) {
	for _, test := range []struct{ name, log, want string }{
		{"empty", "", ""},
		{"an error is not a crash", `{"level":"error","msg":"Reconciler error","error":"panic: is only a word here"}` + "\n", ""},
		{"stacks on SIGQUIT", "SIGQUIT: quit\n\ngoroutine 1 [select]:\nmain.main()\n", ""},
		{"a panic", "{}\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\n", "panic: runtime error: index out of range"},
		{"a fatal error of the runtime", "{}\nfatal error: concurrent map writes\n", "fatal error: concurrent map writes"},
		{"a recovered panic of a controller", `{"level":"error","msg":"Observed a panic"}` + "\n{}\n", `{"level":"error","msg":"Observed a panic"}`},
		{"a data race", "WARNING: DATA RACE\nWrite at 0x1\n", "WARNING: DATA RACE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := crash(test.log); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
