package floor

import (
	"fmt"
	"net"
	"strconv"
	"sync"
)

// The ports to choose from lie below those of our own control planes, and below the range from which the kernel takes the
// local ports of outgoing connections, so that nobody takes one before it is used.
const (
	firstPort = 11000
	lastPort  = 19999
)

// next is the port that is looked at next: one that was given out does not come again soon.
var next = struct {
	sync.Mutex
	port int
}{port: firstPort}

// FreePorts returns so many ports on 127.0.0.1 that nobody listens on.
func FreePorts(n int) ([]int, error) {
	next.Lock()
	defer next.Unlock()
	var ports []int
	for range lastPort - firstPort {
		if len(ports) == n {
			return ports, nil
		}
		port := next.port
		if next.port++; next.port > lastPort {
			next.port = firstPort
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 from %d to %d", n, firstPort, lastPort)
}
