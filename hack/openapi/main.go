//go:build ignore

// This program writes the OpenAPI v2 document for applyconfiguration-gen (--openapi-schema) to
// standard output. It is not part of a package, because hack/generate.sh runs it together with the
// file that openapi-gen has just generated, which defines GetOpenAPIDefinitions.
package main

import (
	"encoding/json"
	"log"
	"os"
	"strings"

	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func main() {
	definitions := spec.Definitions{}
	for goName, definition := range GetOpenAPIDefinitions(func(goName string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name(goName))
	}) {
		schema := definition.Schema
		// The v2 form has details that version 3 lacks, such as int-or-string.
		if v2, ok := definition.Schema.Extensions["x-kubernetes-v2-schema"].(spec.Schema); ok {
			schema = v2
		}
		definitions[name(goName)] = schema
	}
	document := spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "keelson", Version: "generated"}},
		Paths:       &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: definitions,
	}}
	if err := json.NewEncoder(os.Stdout).Encode(document); err != nil {
		log.Fatalf("Write the OpenAPI document: %v", err)
	}
}

// name returns the OpenAPI name of a Go type. Types that define their own name, such as those of
// apimachinery, keep it; other names are package path and type.
func name(goName string) string {
	if !strings.Contains(goName, "/") {
		return goName
	}
	return util.ToRESTFriendlyName(goName)
}
