package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is an object of the base or of a component.
type object map[string]any

func (o object) kind() string { return o["kind"].(string) }
func (o object) name() string { return o["metadata"].(map[string]any)["name"].(string) }

// configMapGenerator is a ConfigMap that a kustomization generates from files.
type configMapGenerator struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Files are KEY=PATH.
	Files   []string `json:"files"`
	Options struct {
		DisableNameSuffixHash bool           `json:"disableNameSuffixHash"`
		Labels                map[string]any `json:"labels"`
	} `json:"options"`
}

// load reads the objects of a kustomization in their order. Unsupported fields that change objects
// are an error. It ignores patches: they remove what is off by default, for which the chart has
// conditions.
func load(dir string) ([]object, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		APIVersion string               `json:"apiVersion"`
		Kind       string               `json:"kind"`
		Namespace  string               `json:"namespace"`
		Resources  []string             `json:"resources"`
		Labels     []any                `json:"labels"`
		Patches    []any                `json:"patches"`
		ConfigMaps []configMapGenerator `json:"configMapGenerator"`
	}
	if err := yaml.UnmarshalStrict(raw, &kustomization); err != nil {
		return nil, fmt.Errorf("parse %s/kustomization.yaml, of which the chart supports namespace, resources, labels, patches and configMapGenerator: %w", dir, err)
	}
	var all []object
	for _, resource := range kustomization.Resources {
		path := filepath.Join(dir, resource)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		read := loadFile
		if info.IsDir() {
			read = load
		}
		objects, err := read(path)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	for _, generator := range kustomization.ConfigMaps {
		made, err := generator.object(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, made)
	}
	return all, nil
}

func loadFile(path string) ([]object, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []object
	for document := range strings.SplitSeq("\n"+string(raw), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all, nil
}

// object returns the ConfigMap of files in a directory. Its name has no hash.
func (g *configMapGenerator) object(dir string) (object, error) {
	if !g.Options.DisableNameSuffixHash {
		return nil, fmt.Errorf("ConfigMap %s: the chart supports only disableNameSuffixHash", g.Name)
	}
	labels, data := map[string]any{}, map[string]any{}
	maps.Copy(labels, g.Options.Labels)
	for _, file := range g.Files {
		key, path, ok := strings.Cut(file, "=")
		if !ok {
			return nil, fmt.Errorf("ConfigMap %s: %s is not KEY=PATH", g.Name, file)
		}
		raw, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return nil, err
		}
		data[key] = string(raw)
	}
	return object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": g.Name, "namespace": g.Namespace, "labels": labels},
		"data":     data,
	}, nil
}
