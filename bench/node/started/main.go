// Command started is what the containers of this benchmark run. It prints when it was started, in nanoseconds since 1970
// by the clock of the machine; with an argument it then stays until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// began is taken before main runs.
var began = time.Now()

func main() {
	fmt.Println(began.UnixNano())
	if len(os.Args) > 1 {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	}
}
