package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// describedDepth is how deep fields of a template have a description: kubectl explain of jobTemplate, of spec, and of a container.
// All others are those of a Job, which kubectl explain describes.
const describedDepth = 3

// opaque are fields whose content the definition does not know: those that Jobs rarely have, with many fields of their own. The API
// server validates them in the dry run of the Job.
var opaque = map[string]bool{
	// of a container
	"lifecycle": true, "livenessProbe": true, "readinessProbe": true, "startupProbe": true,
	// volumes
	"awsElasticBlockStore": true, "azureDisk": true, "azureFile": true, "cephfs": true, "cinder": true, "ephemeral": true, "fc": true,
	"flexVolume": true, "flocker": true, "gcePersistentDisk": true, "gitRepo": true, "glusterfs": true, "iscsi": true,
	"photonPersistentDisk": true, "portworxVolume": true, "quobyte": true, "rbd": true, "scaleIO": true, "storageos": true,
	"vsphereVolume": true,
}

// cut makes the schema of a template so small that kubectl apply can store it in an annotation, without the option --server-side.
func cut(template *schema) {
	yes := true
	walk(template, func(_ string, s *schema) {
		delete(s.Properties, "ephemeralContainers") // a template has none
		for name, property := range s.Properties {
			if opaque[name] && property.Properties != nil {
				s.Properties[name] = schema{Type: "object", Description: property.Description, XPreserveUnknownFields: &yes}
			}
		}
	})
	describe(template, 0)
}

// describe cuts each description to its first sentence, and removes those of fields that are too deep.
func describe(s *schema, depth int) {
	s.Description = firstSentence(s.Description)
	if depth > describedDepth {
		s.Description = ""
	}
	for name, property := range s.Properties {
		describe(&property, depth+1)
		s.Properties[name] = property
	}
	for _, inner := range []*schema{itemsOf(s), valuesOf(s)} {
		if inner != nil {
			describe(inner, depth)
			inner.Description = "" // that of the field suffices
		}
	}
}

func itemsOf(s *apiextensionsv1.JSONSchemaProps) *schema {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func valuesOf(s *apiextensionsv1.JSONSchemaProps) *schema {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}
