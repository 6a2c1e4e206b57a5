//go:build !linux

package measure

import (
	"errors"
	"time"
)

// ProcessorTime returns an error that is errors.ErrUnsupported.
func ProcessorTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// MemoryOf returns an error that is errors.ErrUnsupported.
func MemoryOf(int) (Memory, error) { return Memory{}, errors.ErrUnsupported }

// Load returns a negative number: it cannot be told.
func Load() float64 { return -1 }

func totalMemory() int64 { return 0 }

func processorModel() string { return "" }

// ParentOf returns an error that is errors.ErrUnsupported.
func ParentOf(int) (int, error) { return 0, errors.ErrUnsupported }

// FileSystem returns "unknown".
func FileSystem(string) string { return "unknown" }
