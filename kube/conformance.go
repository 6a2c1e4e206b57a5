//go:build conformance

package main

// hack/conformance.sh builds the tests of this package, with what go.mod has for it.
import _ "k8s.io/kubernetes/test/e2e"
