// Command pause is the one process of a Pod's sandbox: it holds the Pod's namespaces and waits until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	// In a Pod with a shared process namespace this is the first process, which processes without a parent are left to.
	// Nobody asks for their exit status, and so the kernel need not keep it.
	signal.Ignore(syscall.SIGCHLD)
	<-end
}
