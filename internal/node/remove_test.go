package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRemoveData(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, Program), []byte("#!/bin/sh\necho \"$@\" >\"${2%settings.json}said\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, settings string
		asks           bool
	}{
		{"without root", `{"programs": "` + programs + `", "rootless": {}}`, true},
		{"as root", `{"programs": "` + programs + `"}`, false},
		{"damaged", `{"programs": "`, false},
		{"never started", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file := Settings{Dir: dir}.File()
			if test.settings != "" {
				if err := os.WriteFile(file, []byte(test.settings), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := RemoveData(dir); err != nil {
				t.Fatal(err)
			}
			want := ""
			if test.asks {
				want = "remove " + file + "\n"
			}
			if said, _ := os.ReadFile(filepath.Join(dir, "said")); string(said) != want {
				t.Errorf("keelson-node was called with %q, want %q", said, want)
			}
		})
	}
}

func TestRemoveDataWithoutTheProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(Settings{Dir: dir}.File(), []byte(`{"programs": "/nowhere", "rootless": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveData(dir); err == nil || !strings.Contains(err.Error(), "/nowhere/keelson-node") || !strings.Contains(err.Error(), "make node") {
		t.Errorf("got %v", err)
	}
}
