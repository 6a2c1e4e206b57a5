package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// run returns the output of a command line.
func run(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := New()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.Execute()
	return out.String(), err
}

func TestDefaultsAreValid(t *testing.T) {
	texts := map[string]string{}
	for _, of := range []string{"up", "manager"} {
		text, err := run("default", of)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "keelson.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := run("check", path); err != nil || out != path+" is valid\n" {
			t.Errorf("%s: %q, %v", of, out, err)
		}
		texts[of] = text
	}
	if !strings.Contains(texts["up"], "realNodes: true\n") || !strings.Contains(texts["manager"], "realNodes: false\n") {
		t.Errorf("got %q", texts)
	}
	if _, err := run("default", "node"); err == nil || !strings.Contains(err.Error(), `there is no configuration of "node"`) {
		t.Errorf("got %v", err)
	}
}

func TestCheckNamesTheFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keelson.yaml")
	if _, err := run("check", path); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a file: %v", err)
	}
	text := "apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\nvirtualMachines: {egress: some}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("check", path); err == nil || out != "" || !strings.Contains(err.Error(), "virtualMachines.egress: some: must be public or none") {
		t.Errorf("got %q, %v", out, err)
	}
}
