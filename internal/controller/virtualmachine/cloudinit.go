package virtualmachine

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// userDataHeaders are the beginnings of user data that cloud-init recognizes. It ignores anything
// else. https://docs.cloud-init.io/en/latest/explanation/format.html
var userDataHeaders = []string{
	"#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler", "## template:", "Content-Type:", "MIME-Version:", "\x1f\x8b",
}

// checkUserData returns what is wrong with user data; empty if nothing is.
func checkUserData(data string) string {
	data = strings.TrimLeft(data, " \t\r\n")
	first, _, _ := strings.Cut(data, "\n")
	switch {
	case data == "":
		return ""
	case strings.TrimRight(first, " \t\r") == "#cloud-config":
		return checkMapping(data)
	}
	for _, header := range userDataHeaders {
		if strings.HasPrefix(strings.ToLower(first), strings.ToLower(header)) {
			return ""
		}
	}
	return "cloud-init ignores it: it must begin with #cloud-config, with #! for a script, or with another header of cloud-init"
}

// yamlLine is the part of an error of the YAML parser without the text around the mistake, which may
// be confidential.
var yamlLine = regexp.MustCompile(`line \d+`)

// checkMapping returns what is wrong with a YAML mapping; empty if nothing is.
func checkMapping(data string) string {
	var mapping map[string]any
	err := yaml.Unmarshal([]byte(data), &mapping)
	switch {
	case err == nil:
		return ""
	case yamlLine.MatchString(err.Error()):
		return "it is not a YAML mapping: see " + yamlLine.FindString(err.Error())
	default:
		return "it is not a YAML mapping"
	}
}

// checkSeed returns a *backend.FieldError if the guest could not read the seed of a VirtualMachine.
func checkSeed(cloudInit *v1alpha1.CloudInit, seed *backend.Seed) error {
	if cloudInit == nil || seed == nil {
		return nil
	}
	for _, part := range []struct {
		field  string
		from   *v1alpha1.SecretKey
		reason string
	}{
		{"userData", cloudInit.UserDataFrom, checkUserData(seed.UserData)},
		{"networkData", cloudInit.NetworkDataFrom, checkMapping(seed.NetworkData)},
	} {
		switch {
		case part.reason == "":
		case part.from == nil:
			return &backend.FieldError{Field: "spec.cloudInit." + part.field, Message: part.reason}
		default:
			return &backend.FieldError{Field: "spec.cloudInit." + part.field + "From",
				Message: fmt.Sprintf("the key %q of the Secret %q: %s", part.from.Key, part.from.Name, part.reason)}
		}
	}
	return nil
}
