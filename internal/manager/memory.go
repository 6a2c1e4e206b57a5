package manager

import (
	"os"
	"runtime/debug"
	"sync"
)

// gcPercent is by how many percent the heap may grow before Go collects garbage.
const gcPercent = 40

// collectSooner makes Go collect garbage more often than its default of 100 percent, in this process.
//
// Most of what a manager keeps are its caches, which hardly change: with the default, as much memory again would be
// garbage after every burst. The variable with which Go lets a user decide still wins.
var collectSooner = sync.OnceFunc(func() {
	_, decided := os.LookupEnv("GOGC")
	setGCPercent(decided)
})

// setGCPercent sets the percentage unless the user has decided.
func setGCPercent(decided bool) {
	if !decided {
		debug.SetGCPercent(gcPercent)
	}
}
