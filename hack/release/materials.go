package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// materials writes the software bill of materials of the release, as CycloneDX: every program of
// the first architecture with its Go modules, from its build information. Other architectures have
// the same modules.
func (r *release) materials() error {
	folder := filepath.Join(r.built, architectures[0])
	names, err := filesIn(folder)
	if err != nil {
		return err
	}
	files := map[string]string{
		launcher: filepath.Join(r.built, "launcher", ofX86[0], launcher),
		client:   filepath.Join(r.built, "client", "linux-"+architectures[0], client),
	}
	for _, name := range names {
		files[name] = filepath.Join(folder, name)
	}
	bom := cyclonedx.NewBOM()
	root := cyclonedx.Component{BOMRef: "keelson", Type: cyclonedx.ComponentTypeApplication, Name: "keelson", Version: r.version}
	bom.Metadata = &cyclonedx.Metadata{Component: &root}
	programs := map[string]cyclonedx.Component{}
	libraries := map[string]cyclonedx.Component{}
	dependencies := map[string][]string{}
	for file, path := range files {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s has no build information: %w", file, err)
		}
		digest, err := sum(path)
		if err != nil {
			return err
		}
		programs[file] = cyclonedx.Component{
			BOMRef: file, Type: cyclonedx.ComponentTypeApplication, Name: file, Version: r.version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", digest)}},
		}
		dependencies["keelson"] = append(dependencies["keelson"], file)
		for _, module := range append([]*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...) {
			library, err := libraryOf(module)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			libraries[library.BOMRef] = library
			dependencies[file] = append(dependencies[file], library.BOMRef)
		}
	}
	packages, err := r.packages()
	if err != nil {
		return err
	}
	for _, of := range packages {
		libraries[of.BOMRef] = of
		dependencies[launcher] = append(dependencies[launcher], of.BOMRef)
	}
	components := slices.Collect(ordered(programs))
	components = slices.AppendSeq(components, ordered(libraries))
	bom.Components = &components
	graph := []cyclonedx.Dependency{}
	for _, name := range slices.Sorted(maps.Keys(dependencies)) {
		of := slices.Compact(slices.Sorted(slices.Values(dependencies[name])))
		graph = append(graph, cyclonedx.Dependency{Ref: name, Dependencies: &of})
	}
	bom.Dependencies = &graph
	return write(filepath.Join(r.out, "keelson-"+r.version+".cdx.json"), bom)
}

// launcher is the program of the image that has packages of the distribution, too.
const launcher = "keelson-launcher"

// packages describes the packages of the distribution that the image of the launcher has files of.
func (r *release) packages() (all []cyclonedx.Component, err error) {
	data, err := os.ReadFile(filepath.Join(r.built, "packages"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("the list of packages has the line %q; want distribution, name and version", line)
		}
		purl := fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s", words[0], words[1], url.PathEscape(words[2]), ofX86[0])
		all = append(all, cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: words[1], Version: words[2], PackageURL: purl})
	}
	return all, nil
}

// libraryOf describes a module or its replacement.
func libraryOf(module *debug.Module) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	if module.Path == "" || strings.HasPrefix(module.Path, ".") || strings.HasPrefix(module.Path, "/") {
		return cyclonedx.Component{}, errors.New("a module is replaced by a folder without a version")
	}
	purl := fmt.Sprintf("pkg:golang/%s@%s", module.Path, module.Version)
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: purl,
	}, nil
}

// ordered returns the components sorted by name.
func ordered(components map[string]cyclonedx.Component) func(func(cyclonedx.Component) bool) {
	return func(yield func(cyclonedx.Component) bool) {
		for _, name := range slices.Sorted(maps.Keys(components)) {
			if !yield(components[name]) {
				return
			}
		}
	}
}

func write(file string, bom *cyclonedx.BOM) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
