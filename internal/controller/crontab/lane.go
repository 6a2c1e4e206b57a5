package crontab

import "time"

const (
	// createTimeout is how long the API server has to create a Job. An admission webhook
	// that hangs may take it longer.
	createTimeout = 10 * time.Second

	// slowAfter is how long a create takes from which on its CronTab is a slow one.
	slowAfter = 2 * time.Second

	// slowLane is how many of the slow ones are tried at a time: all others have the rest
	// of the workers. slowPause is when one looks again for which there was no room.
	slowLane  = 4
	slowPause = time.Second
)

// lane lets a few through at a time.
type lane chan struct{}

// enter reports whether there is room; then leave must follow.
func (l lane) enter() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lane) leave() { <-l }
