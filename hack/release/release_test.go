package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// work is the folder for all output.
var work string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "release")
	if err = errors.Join(err, os.Chdir("../..")); err != nil {
		panic(err)
	}
	work = folder
	code := m.Run()
	_ = os.RemoveAll(work)
	os.Exit(code)
}

// build builds the programs of a release: this test, which has modules, as keelson, and a small
// program as the others.
var build = sync.OnceValues(func() (string, error) {
	source := filepath.Join(work, "small.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return "", err
	}
	small := filepath.Join(work, "small")
	if output, err := exec.Command("go", "build", "-o", small, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	built := filepath.Join(work, "built")
	for name, from := range map[string]string{
		"amd64/keelson": self, "amd64/keelson-kube": small, "amd64/node/keelson-node": small,
		"arm64/keelson": small, "arm64/keelson-kube": small, "arm64/node/keelson-node": small,
		"client/linux-amd64/kubectl-keelson": small, "client/windows-arm64/kubectl-keelson.exe": small,
		"guest/amd64/kernel": source, "launcher/amd64/keelson-launcher": small, "launcher/amd64/usr/bin/qemu-system-x86_64": small,
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		path := filepath.Join(built, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o755)); err != nil {
			return "", err
		}
	}
	const packages = "debian qemu-system-x86 1:7.2+dfsg-7\ndebian zlib1g 1:1.2.13\n"
	return built, os.WriteFile(filepath.Join(built, "packages"), []byte(packages), 0o600)
})

// pack packs a release into a new folder.
func pack() (string, error) {
	built, err := build()
	if err != nil {
		return "", err
	}
	out, err := os.MkdirTemp(work, "out")
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile("hack/install.sh")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(out, "install.sh"), script, 0o755); err != nil {
		return "", err
	}
	r := release{version: "v1.2.3", built: built, out: out, certs: "LICENSE"}
	return out, r.pack()
}

var packOnce = sync.OnceValues(pack)

// A client that has grown is not released.
func TestClientIsTooLarge(t *testing.T) {
	built := t.TempDir()
	folder := filepath.Join(built, "client", "linux-amd64")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		size    int
		refused bool
	}{{maxClient, false}, {maxClient + 1, true}} {
		if err := os.WriteFile(filepath.Join(folder, client), make([]byte, test.size), 0o755); err != nil {
			t.Fatal(err)
		}
		r := release{version: "v1.2.3", built: built, out: t.TempDir()}
		if err := r.clients(); (err != nil) != test.refused {
			t.Errorf("a client of %d bytes: %v", test.size, err)
		}
	}
}

// packed returns a copy of a release.
func packed(t *testing.T) string {
	t.Helper()
	out, err := packOnce()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(out)); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestReproducible(t *testing.T) {
	first, err := os.ReadFile(filepath.Join(packed(t), "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := pack()
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("two releases differ:\n%s\n%s", first, second)
	}
	if count := strings.Count(string(first), "\n"); count != 11 {
		t.Errorf("%d files have a checksum, want 11:\n%s", count, first)
	}
}

// unpack returns the entries of a tar archive by name.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if strings.HasSuffix(path, "gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	entries := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			entries[header.Name] = []byte(header.Linkname)
		}
	}
}

// The packed folders also contain tests.
func TestArchivesHaveNoSource(t *testing.T) {
	for _, name := range []string{"keelson-v1.2.3-linux-amd64", "keelson-v1.2.3-linux-arm64"} {
		entries := unpack(t, filepath.Join(packed(t), name+".tar.gz"))
		for entry := range entries {
			if strings.HasSuffix(entry, ".go") && !strings.HasPrefix(entry, name+"/examples/") {
				t.Errorf("the archive contains %s", entry)
			}
		}
		for _, file := range []string{"config/systemd/keelson-up.service", "config/monitoring/prometheus.yml", "charts/keelson/values.yaml", "examples/gitops/argocd-cm.yaml"} {
			if len(entries[name+"/"+file]) == 0 {
				t.Errorf("%s has no %s", name, file)
			}
		}
	}
}

var (
	relativeLink = regexp.MustCompile(`\]\((\.?[^):#]+)[^):]*\)`)
	resource     = regexp.MustCompile(`(?m)^ *- (\.\./\S+)$`)
)

// The files and folders to which the pages for users link, and to which kustomizations refer, are in the archive, too.
func TestLinksInTheArchive(t *testing.T) {
	const name = "keelson-v1.2.3-linux-amd64/"
	entries := unpack(t, filepath.Join(packed(t), "keelson-v1.2.3-linux-amd64.tar.gz"))
	links, resources := 0, 0
	check := func(from, link string) {
		target := path.Join(path.Dir(from), link)
		for entry := range entries {
			if entry == target || strings.HasPrefix(entry, target+"/") {
				return
			}
		}
		t.Errorf("%s refers to %s, which is not in the archive", from, link)
	}
	for file, data := range entries {
		switch dir, base := path.Split(file); {
		case path.Ext(base) == ".md" && (dir == name+"docs/" || file == name+"README.md") && base != "architecture.md":
			for _, link := range relativeLink.FindAllSubmatch(data, -1) {
				links++
				check(file, string(link[1]))
			}
		case base == "kustomization.yaml":
			for _, link := range resource.FindAllSubmatch(data, -1) {
				resources++
				check(file, string(link[1]))
			}
		}
	}
	if links < 500 || resources < 5 {
		t.Errorf("there are only %d links and %d resources", links, resources)
	}
}

func TestClients(t *testing.T) {
	for system, program := range map[string]string{"linux-amd64": "kubectl-keelson", "windows-arm64": "kubectl-keelson.exe"} {
		name := "kubectl-keelson-v1.2.3-" + system
		entries := unpack(t, filepath.Join(packed(t), name+".tar.gz"))
		if len(entries) != 2 || len(entries[name+"/"+program]) == 0 || len(entries[name+"/LICENSE"]) == 0 {
			t.Errorf("%s has %d entries", name, len(entries))
		}
	}
}

func TestChart(t *testing.T) {
	entries := unpack(t, filepath.Join(packed(t), "keelson-1.2.3.tgz"))
	chart := string(entries["keelson/Chart.yaml"])
	for _, line := range []string{"\nversion: 1.2.3\n", "\nappVersion: v1.2.3\n", "\nname: keelson\n"} {
		if !strings.Contains("\n"+chart, line) {
			t.Errorf("Chart.yaml has no line %q:\n%s", strings.TrimSpace(line), chart)
		}
	}
	if len(entries["keelson/values.yaml"]) == 0 {
		t.Error("the chart has no values.yaml")
	}
}

// The images are valid OCI layouts: every digest and size matches its content.
func TestImages(t *testing.T) {
	out := packed(t)
	for program, want := range map[string]int{"keelson": 2, "keelson-kube": 2, "keelson-launcher": 1, "keelson-guest": 1} {
		folder := t.TempDir()
		for name, data := range unpack(t, filepath.Join(out, program+"-v1.2.3.oci.tar")) {
			path := filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		index, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		images, err := index.ImageIndex(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if manifest, err = images.IndexManifest(); err != nil || len(manifest.Manifests) != want {
			t.Errorf("%s: %v, %v; want %d architectures", program, manifest, err, want)
		}
	}
}

func TestBillOfMaterials(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(packed(t), "keelson-v1.2.3.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cyclonedx.BOM
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
	}
	for _, name := range []string{"keelson", "node/keelson-node", "keelson-launcher", "qemu-system-x86", "std", "github.com/google/go-containerregistry"} {
		if !slices.Contains(names, name) {
			t.Errorf("the bill of materials lacks %s", name)
		}
	}
}

// install runs install.sh of a release for a user with that home directory.
func install(t *testing.T, out string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(out, "install.sh"), args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin")
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func TestInstall(t *testing.T) {
	out, prefix := packed(t), t.TempDir()
	for _, what := range []string{"installation", "upgrade"} {
		if output, err := install(t, out, "--prefix", prefix); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, output)
		}
		for _, name := range []string{"bin/keelson", "bin/kubectl-vm", "bin/kubectl_complete-crontab", "lib/keelson/kubectl", "lib/keelson/kubectl-cluster", "lib/keelson/node/keelson-node"} {
			if info, err := os.Stat(filepath.Join(prefix, name)); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %s cannot be executed: %v", what, name, err)
			}
		}
		entries, err := os.ReadDir(filepath.Join(prefix, "lib"))
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: lib has %v, %v; want keelson only", what, entries, err)
		}
	}
	guest := filepath.Join(prefix, "lib/keelson/guest/kernel")
	if _, err := os.Stat(guest); (err == nil) != (runtime.GOARCH == "amd64") {
		t.Errorf("the guest: %v", err)
	}
}

func TestInstallErrors(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, out string)
		args  []string
		want  string
	}{
		{name: "a relative prefix", args: []string{"--prefix", "here"}, want: "name an absolute path"},
		{name: "an unknown argument", args: []string{"--force"}, want: "unknown argument --force"},
		{name: "a damaged archive", want: "is damaged", spoil: func(t *testing.T, out string) {
			change(t, archiveOf(out), func(data []byte) []byte { return append(bytes.Clone(data), 0) })
		}},
		{name: "no archive", want: "beside install.sh", spoil: func(t *testing.T, out string) {
			if err := os.Remove(archiveOf(out)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "no checksums", want: "SHA256SUMS is missing", spoil: func(t *testing.T, out string) {
			if err := os.Remove(filepath.Join(out, "SHA256SUMS")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "an archive without checksum", want: "is damaged", spoil: func(t *testing.T, out string) {
			change(t, filepath.Join(out, "SHA256SUMS"), func([]byte) []byte { return nil })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, prefix := packed(t), t.TempDir()
			if tt.spoil != nil {
				tt.spoil(t, out)
			}
			args := tt.args
			if args == nil {
				args = []string{"--prefix", prefix}
			}
			output, err := install(t, out, args...)
			if err == nil || !strings.Contains(output, tt.want) {
				t.Errorf("%v, %q; want an error with %q", err, output, tt.want)
			}
			if entries, err := os.ReadDir(prefix); err != nil || len(entries) != 0 {
				t.Errorf("something was installed: %v, %v", entries, err)
			}
		})
	}
}

func archiveOf(out string) string {
	return filepath.Join(out, "keelson-v1.2.3-linux-"+runtime.GOARCH+".tar.gz")
}

func change(t *testing.T, path string, to func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, to(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "1.2.3": false, "v1.2": false, "": false, "v1.2.3/..": false, "main": false,
	} {
		if err := (&release{version: version}).checkVersion(); (err == nil) != want {
			t.Errorf("%q: %v", version, err)
		}
	}
}
