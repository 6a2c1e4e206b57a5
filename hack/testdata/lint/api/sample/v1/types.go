// Package v1 is an API that imports too much.
package v1

import (
	_ "time"

	_ "github.com/keelson-dev/keelson/internal/process" // want: depguard
)
