// Command keelson-kube is the stock upstream Kubernetes components behind one
// multi-call main: etcd, etcdctl, etcdutl, kube-apiserver, kube-controller-manager,
// kube-scheduler, kwok, kubectl, and on Linux kubelet and kube-proxy.
//
// The component is chosen by the name the binary is called by (so a link named
// kubectl is kubectl) or by its first argument. One process runs one component:
// feature gates, logging, metrics registries and klog are global to a process,
// and kube-apiserver's constructor installs signal handlers, so a component's
// command must not even be constructed unless it is the one asked for.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/component-base/version"
)

// components maps the name of each component to its main function. A main
// function reads os.Args and ends the process.
var components = map[string]func(){
	"etcd":                    etcd,
	"etcd-load":               etcdLoad,
	"etcd-snapshot":           etcdSnapshot,
	"etcdctl":                 etcdctl,
	"etcdutl":                 etcdutl,
	"kube-apiserver":          apiserver,
	"kube-controller-manager": controllerManager,
	"kube-scheduler":          scheduler,
	"kubectl":                 kubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := components[name]
	if !ok && len(os.Args) > 1 {
		name = os.Args[1]
		run, ok = components[name]
		os.Args = os.Args[1:]
	}
	switch {
	case ok:
		run()
	case name == "version" || name == "--version":
		printVersions()
	default:
		names := make([]string, 0, len(components))
		for component := range components {
			names = append(names, component)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: keelson-kube COMPONENT [FLAGS]\n       keelson-kube version\n\nCOMPONENT is one of: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
}

// kwokVersion returns the version of kwok; nil if it is not built in.
var kwokVersion func() string

// printVersions writes one "component version" line for each upstream project
// that is built in, the way a script would want to read them.
func printVersions() {
	fmt.Printf("kubernetes %s\netcd v%s\n", version.Get().GitVersion, etcdVersion())
	if kwokVersion != nil {
		fmt.Printf("kwok %s\n", kwokVersion())
	}
}
