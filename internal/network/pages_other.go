//go:build !linux

package network

// dropProgram does nothing: it is about memory only.
func dropProgram() error { return nil }
