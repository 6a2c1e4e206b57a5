package secrecy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMask(t *testing.T) {
	for _, tt := range []struct{ name, document, want string }{
		{"nothing secret", "a: 1\nb: [x, z]\n", "a: 1\nb:\n- x\n- z\n"},
		{"by the name of the field", "password: x\napi_token: v\naccessKey: z\n", "accessKey: '********'\napi_token: '********'\npassword: '********'\n"},
		{"everything below it", "credentials: {a: [1, {b: c}]}\n", "credentials:\n  a:\n  - '********'\n  - b: '********'\n"},
		{"a path to a secret is none", "ssh_key_path: ~/.ssh/id\nsecretName: s\n", "secretName: s\nssh_key_path: ~/.ssh/id\n"},
		{"a key under any name", "x: |-\n  -----BEGIN EC PRIVATE KEY-----\n  AA\n", "x: '********'\n"},
		{"a password in a URL", "proxy: http://me:hunter2@proxy.example:3128\n", "proxy: http://********@proxy.example:3128\n"},
		{"a switch and nothing", "auth: true\ntoken:\n", "auth: true\ntoken: null\n"},
		{"an empty document", "", "null\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Mask([]byte(tt.document))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := Mask([]byte("password: [hunter2")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("what is no YAML: %v", err)
	}
}

func TestScrub(t *testing.T) {
	for line, want := range map[string]string{
		"nothing secret":                               "nothing secret",
		"login with password=hunter2 failed":           "login with password=******** failed",
		"Token: abc, again":                            "Token:******** again",
		"get https://me:pw@registry.example/v2 failed": "get https://********@registry.example/v2 failed",
	} {
		if got := Scrub(line); got != want {
			t.Errorf("Scrub(%q) = %q, want %q", line, got, want)
		}
	}
}

func TestHash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if hash, err := Hash(file, []byte("a")); hash != "" || err != nil {
		t.Errorf("without a key: %q, %v; want nothing", hash, err)
	}
	hashes := map[string]bool{}
	for range 2 {
		if err := MakeKey(file); err != nil {
			t.Fatal(err)
		}
		for _, document := range []string{"a", "b"} {
			hash, err := Hash(file, []byte(document))
			if err != nil || len(hash) != 32 {
				t.Errorf("%q, %v", hash, err)
			}
			hashes[hash] = true
		}
	}
	if len(hashes) != 2 {
		t.Errorf("two documents under one key have %d hashes", len(hashes))
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if hash, err := Hash(file, []byte("a")); hash != "" || err != nil {
		t.Errorf("with a damaged key: %q, %v; want nothing", hash, err)
	}
}
