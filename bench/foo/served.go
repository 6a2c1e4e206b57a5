package main

import "strings"

// isCounted reports whether "VERB resource subresource" is something that the manager may have sent and that nobody
// else sends while it is counted. POST foos are the benchmark's.
func isCounted(what string) bool {
	verb, rest, _ := strings.Cut(what, " ")
	resource, _, _ := strings.Cut(rest, " ")
	switch resource {
	case "foos":
		return verb != "LIST" && verb != "GET" && what != "POST foos "
	case "deployments", "events":
		return verb != "LIST" && verb != "GET"
	}
	return false
}

// trim returns "VERB resource" or "VERB resource/subresource".
func trim(what string) string {
	verb, rest, _ := strings.Cut(what, " ")
	return verb + " " + strings.ReplaceAll(strings.TrimSpace(rest), " ", "/")
}

func isWatch(what string) bool { return strings.HasPrefix(what, "WATCH ") }
