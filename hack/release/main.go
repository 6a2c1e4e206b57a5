// Command release packs the output of hack/release.sh into the folder of a release: archives of the
// programs, images, the chart, software bills of materials and checksums. The same input produces
// the same bytes.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// architectures are the architectures of a release, by Go's names.
var architectures = []string{"amd64", "arm64"}

// client is the program for hosts without Keelson, and maxClient the bytes that it may have.
const (
	client    = "kubectl-keelson"
	maxClient = 40_000_000
)

// release has the paths of a release, relative to the root of the repository.
type release struct {
	version string // a semantic version, with the v
	built   string // the folder of built files: one folder for each architecture, guest, launcher, and the list packages
	out     string // the folder of the release
	certs   string // root certificates for the images
}

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "the version, such as v1.2.3")
	flag.StringVar(&r.built, "built", "", "the folder of built files")
	flag.StringVar(&r.out, "out", "", "the folder of the release, which must exist")
	flag.StringVar(&r.certs, "certificates", "", "the file with root certificates")
	flag.Parse()
	if err := r.pack(); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func (r *release) pack() error {
	if err := r.checkVersion(); err != nil {
		return err
	}
	for _, architecture := range architectures {
		if err := r.programs(architecture); err != nil {
			return err
		}
	}
	if err := r.clients(); err != nil {
		return err
	}
	if err := r.images(); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	if err := r.materials(); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	return r.checksums()
}

func (r *release) checkVersion() error {
	if r.version == "" || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("the version %q is not of the form v1.2.3 or v1.2.3-rc.1", r.version)
	}
	return nil
}

// programs packs the programs for one architecture into an archive.
func (r *release) programs(architecture string) error {
	name := fmt.Sprintf("keelson-%s-linux-%s", r.version, architecture)
	a := archive{prefix: name + "/"}
	a.folder(filepath.Join(r.built, architecture), "")
	for _, image := range []string{"guest", "launcher"} {
		if folder := filepath.Join(r.built, image, architecture); exists(folder) {
			a.folder(folder, image)
		}
	}
	// With the paths of the repository, which the pages name and link to, and kustomizations refer to.
	for _, folder := range []string{"api/crds", "config", "docs", "examples"} {
		a.folder(folder, folder)
	}
	a.file("examples/client-go/main.go", "examples/client-go/main.go")
	r.addChart(&a, "charts/keelson")
	a.link("kubectl", "keelson-kube")
	for _, plugin := range []string{"vm", "crontab", "cluster"} {
		a.link("kubectl-"+plugin, "keelson")
		a.link("kubectl_complete-"+plugin, "keelson")
	}
	for _, file := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"} {
		a.file(file, file)
	}
	return a.write(filepath.Join(r.out, name+".tar.gz"))
}

// clients packs the client for each system into an archive.
func (r *release) clients() error {
	folder := filepath.Join(r.built, "client")
	systems, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, system := range systems {
		name := fmt.Sprintf("%s-%s-%s", client, r.version, system.Name())
		a := archive{prefix: name + "/"}
		a.folder(filepath.Join(folder, system.Name()), "")
		for _, e := range a.entries {
			if len(e.data) > maxClient {
				return fmt.Errorf("the client for %s has %d bytes, more than %d; go list -deps ./cmd/%s may name the reason", system.Name(), len(e.data), maxClient, client)
			}
		}
		a.file("LICENSE", "LICENSE")
		if err := a.write(filepath.Join(r.out, name+".tar.gz")); err != nil {
			return err
		}
	}
	return nil
}

// chart packs the chart with the version of the release, in Helm's archive format.
func (r *release) chart() error {
	var a archive
	r.addChart(&a, "keelson")
	return a.write(filepath.Join(r.out, "keelson-"+r.chartVersion()+".tgz"))
}

// chartVersion returns the version of the chart, which has no v.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }

// addChart adds the chart with the version of the release below name.
func (r *release) addChart(a *archive, name string) {
	data, err := os.ReadFile("charts/keelson/Chart.yaml")
	a.err = errors.Join(a.err, err)
	text := replaceLine(string(data), "version: ", r.chartVersion())
	text = replaceLine(text, "appVersion: ", r.version)
	a.folder("charts/keelson", name)
	a.content(path.Join(name, "Chart.yaml"), []byte(text))
}

// replaceLine replaces the rest of the line after prefix.
func replaceLine(text, prefix, value string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, prefix) {
			lines[i] = prefix + value
		}
	}
	return strings.Join(lines, "\n")
}

// checksums writes SHA256SUMS over all other files of the release, in the format of sha256sum
// --check.
func (r *release) checksums() error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		if entry.Name() == name {
			continue
		}
		sum, err := sum(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, name), []byte(lines.String()), 0o644)
}

func sum(path string) (result []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// filesIn returns the files below a folder, sorted, with paths relative to it.
func filesIn(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		files = append(files, relative)
		return err
	})
	slices.Sort(files)
	return files, err
}
