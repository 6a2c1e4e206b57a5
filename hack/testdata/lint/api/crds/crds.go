// Package crds imports too much.
package crds

import (
	_ "embed"

	_ "github.com/keelson-dev/keelson/api/sample/v1" // want: depguard
)
