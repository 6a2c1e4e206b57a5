// Package kube knows domain words.
package kube

import (
	_ "github.com/keelson-dev/keelson/internal/stub" // want: depguard
)
