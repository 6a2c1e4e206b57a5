// Package version says which build of Keelson this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Version is the version of this build. The linker sets it:
//
//	go build -ldflags "-X github.com/keelson-dev/keelson/internal/version.Version=v1.2.3"
//
// A build without that flag leaves it empty; Get then asks the Go toolchain.
var Version string

// Info is what is known about a build. No field is ever empty.
type Info struct {
	// Keelson is the version of this program, such as v1.2.3, or "devel" with the
	// commit where the build knows it.
	Keelson string `json:"keelson"`
	// Go is the version of the toolchain that compiled it, such as go1.26.0.
	Go string `json:"go"`
	// Kubernetes is the version of the Kubernetes API libraries in it, such as
	// v1.37.2. The cluster may run another one.
	Kubernetes string `json:"kubernetes"`
	// Platform is the operating system and architecture, such as linux/amd64.
	Platform string `json:"platform"`
}

// Get returns what is known about this build.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return fromBuild(Version, build)
}

// UserAgent is how this program names itself to an API server, such as
// "keelson/v1.2.3 (linux/amd64)".
func UserAgent() string {
	info := Get()
	return fmt.Sprintf("keelson/%s (%s)", info.Keelson, info.Platform)
}

// fromBuild combines the version that the linker stamped, which may be empty,
// with what the toolchain recorded, which is nil in a binary without modules.
func fromBuild(stamped string, build *debug.BuildInfo) Info {
	info := Info{
		Keelson:    stamped,
		Go:         runtime.Version(),
		Kubernetes: "unknown",
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build == nil {
		build = &debug.BuildInfo{}
	}
	if info.Keelson == "" {
		info.Keelson = moduleVersion(build)
	}
	for _, dep := range build.Deps {
		if dep.Path != "k8s.io/client-go" {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		info.Kubernetes = kubernetesVersion(dep.Version)
	}
	return info
}

// moduleVersion is the version of the main module as the toolchain knows it: the
// tag for `go install module@version`, else "devel" and the commit.
func moduleVersion(build *debug.BuildInfo) string {
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var commit, dirty string
	for _, setting := range build.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = "-" + setting.Value[:min(12, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "-dirty"
		}
	}
	return "devel" + commit + dirty
}

// kubernetesVersion translates the version of a k8s.io library: v0.37.2 belongs to
// Kubernetes v1.37.2. Anything else is returned as it is.
func kubernetesVersion(library string) string {
	if rest, ok := strings.CutPrefix(library, "v0."); ok {
		return "v1." + rest
	}
	return library
}
