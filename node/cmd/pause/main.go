// Command pause is the one process of a Pod's sandbox: it holds the namespaces of the Pod until it gets a signal.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	// In a Pod with a shared process namespace this is the first process, which adopts processes without a parent.
	// Their exit status is not needed, so the kernel need not keep zombies.
	signal.Ignore(syscall.SIGCHLD)
	<-end
}
