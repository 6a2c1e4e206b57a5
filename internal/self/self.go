// Package self names the program that runs, for processes that are this program in another role: a shim, a sandbox, or a switch.
// Nothing is imported here, so that it is initialised before all that uses it.
package self

// Path starts this program even after its file was replaced by a newer one. Tests set it, see package roles.
var Path = "/proc/self/exe"
