// Package controlplane knows what runs on it.
package controlplane

import (
	_ "github.com/keelson-dev/keelson/api/sample/v1"       // want: depguard
	_ "github.com/keelson-dev/keelson/client/listers"      // want: depguard
	_ "github.com/keelson-dev/keelson/internal/cli"        // want: depguard
	_ "github.com/keelson-dev/keelson/internal/controller" // want: depguard
	_ "github.com/keelson-dev/keelson/internal/manager"    // want: depguard
	_ "github.com/keelson-dev/keelson/internal/process"
)
