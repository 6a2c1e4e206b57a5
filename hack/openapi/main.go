//go:build ignore

// This program writes the OpenAPI v2 document that applyconfiguration-gen needs
// (its --openapi-schema) to standard output. hack/generate.sh runs it together
// with the file that openapi-gen has just generated, which defines
// GetOpenAPIDefinitions; that is why it is not part of any package.
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
		// The v2 form says things that version 3 does not, such as int-or-string.
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

// name is the OpenAPI name of a Go type. Types that choose a name of their own
// (those of apimachinery do) come with it; the others come as package path and
// type.
func name(goName string) string {
	if !strings.Contains(goName, "/") {
		return goName
	}
	return util.ToRESTFriendlyName(goName)
}
