package main

import "strings"

// isCounted reports whether "VERB resource" is something that the manager may have sent and that nobody else sends while
// it is counted. POST foos are the benchmark's.
func isCounted(what string) bool {
	verb, _, _ := strings.Cut(what, " ")
	return verb != "LIST" && verb != "GET" && what != "POST foos"
}

func isWatch(what string) bool { return strings.HasPrefix(what, "WATCH ") }
