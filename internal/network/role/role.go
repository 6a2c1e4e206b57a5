// Package role turns the program into the switch of package network when it was started as one. Import it for its effect in
// the main package:
//
//	import _ "github.com/keelson-dev/keelson/internal/network/role"
//
// It runs when the packages are initialised, and so before those of Kubernetes, whose initialisation a switch does not use.
package role

import "github.com/keelson-dev/keelson/internal/network"

func init() { network.Role() }
