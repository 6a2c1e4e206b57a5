// Package cron is not pure.
package cron

import (
	"time"

	_ "github.com/keelson-dev/keelson/internal/stub" // want: depguard
)

// Next reads the wall clock.
func Next() time.Time {
	return time.Now() // want: forbidigo
}
