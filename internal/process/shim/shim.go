// Package shim turns the program into the shim of package process when it was started as one. Import it for its
// effect in the main package:
//
//	import _ "github.com/keelson-dev/keelson/internal/process/shim"
//
// Go initialises packages in the order of their import paths as soon as their dependencies are initialised. This one
// depends on the standard library, atomicfile and self only and comes before k8s.io and sigs.k8s.io, so that a shim does not pay, in time
// and in memory, for the initialisation of packages that it does not use. Nothing else may be imported here.
package shim

import "github.com/keelson-dev/keelson/internal/process"

func init() { process.Shim() }
