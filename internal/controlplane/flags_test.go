package controlplane

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Every flag of kube-apiserver that says that it is about files, folders or sockets of the host is one that users of a
// cluster cannot set, but for these. A new version with another one fails here.
func TestFlagsThatNameFilesAreKnown(t *testing.T) {
	harmless := map[string]bool{
		// How long what others write is kept.
		"audit-log-compress": true, "audit-log-maxage": true, "audit-log-maxbackup": true, "audit-log-maxsize": true,
		"encryption-provider-config-automatic-reload": true,
		"vmodule": true, // source files
	}
	binary, err := filepath.Abs("../../bin/keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), binary, "kube-apiserver", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)(.*(?:\n {8,}[^ -].*)*)`)
	file := regexp.MustCompile(`(?i)\b(files?|filename|path|directory|directories|socket)\b`)
	found, guarded := 0, 0
	for _, match := range flag.FindAllStringSubmatch(string(help), -1) {
		found++
		if !file.MatchString(match[2]) {
			continue
		}
		guarded++
		if name := match[1]; !IsReservedFlag(name) && !NamesFile(name) && !harmless[name] {
			t.Errorf("--%s names a file of the host, and users of a cluster can set it:%s", name, match[2])
		}
	}
	if found < 100 || guarded < 25 {
		t.Errorf("only %d flags were found, %d of them about files", found, guarded)
	}
	if NamesFile("runtime-config") || NamesFile("event-ttl") {
		t.Error("flags that name no file are refused")
	}
}
