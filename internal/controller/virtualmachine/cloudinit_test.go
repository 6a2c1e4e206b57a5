package virtualmachine

import (
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestCheckUserData(t *testing.T) {
	const ignored = "cloud-init ignores it: it must begin with #cloud-config, with #! for a script, or with another header of cloud-init"
	for data, want := range map[string]string{
		"":                                      "",
		"#cloud-config\n":                       "",
		"#cloud-config\nusers: [{name: a}]\n":   "",
		"\n#cloud-config \r\nhostname: a\n":     "",
		"#!/bin/sh\necho {\n":                   "",
		"#include\nhttps://example.org/a\n":     "",
		"## template: jinja\n#cloud-config\n{%": "",
		"#cloud-config-archive\n- a\n":          "",
		"Content-Type: multipart/mixed\n":       "",
		"mime-version: 1.0\n":                   "",
		"\x1f\x8b\x08rest":                      "",
		"#cloud-config\nusers: [\n":             "it is not a YAML mapping: see line 2",
		"#cloud-config\npassword: *secret\n":    "it is not a YAML mapping",
		"#cloud-config\n- a\n":                  "it is not a YAML mapping",
		"users: []\n":                           ignored,
		"#cloudconfig\nusers: []\n":             ignored,
	} {
		if got := checkUserData(data); got != want {
			t.Errorf("%q: got %q, want %q", data, got, want)
		}
	}
}

func TestCheckSeed(t *testing.T) {
	secret := &v1alpha1.SecretKey{Name: "users", Key: "data"}
	for _, test := range []struct {
		name      string
		cloudInit *v1alpha1.CloudInit
		seed      *backend.Seed
		want      string
	}{
		{"none", nil, nil, ""},
		{"valid", &v1alpha1.CloudInit{}, &backend.Seed{UserData: "#!/bin/sh\n", NetworkData: "version: 2\n"}, ""},
		{"in the spec", &v1alpha1.CloudInit{}, &backend.Seed{UserData: "#cloud-config\n{"},
			"not possible: spec.cloudInit.userData: it is not a YAML mapping: see line 2"},
		{"in a Secret", &v1alpha1.CloudInit{NetworkDataFrom: secret}, &backend.Seed{NetworkData: "- a"},
			`not possible: spec.cloudInit.networkDataFrom: the key "data" of the Secret "users": it is not a YAML mapping`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := checkSeed(test.cloudInit, test.seed); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
