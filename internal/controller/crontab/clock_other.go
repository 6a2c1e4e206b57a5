//go:build !linux

package crontab

import "k8s.io/utils/clock"

// exactClock is the real clock.
type exactClock struct{ clock.RealClock }
