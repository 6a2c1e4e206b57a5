package rke_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/rke"
)

// What a user of the API names in spec.configPath is a configuration in the directories of the administrator, or nothing:
// rke is not run, no file is written, and no message tells what is in a file.
func TestConfigurationsAreConfined(t *testing.T) {
	for name, test := range map[string]struct {
		path func(allowed, config string) string
		says string
	}{
		"elsewhere": {func(_, config string) string { return config }, "clusters.rkeConfigDirs allows: "},
		"out by dots": {func(allowed, config string) string {
			return allowed + "/../" + filepath.Base(filepath.Dir(config)) + "/aws.yml"
		}, "in none of the directories"},
		"out by a link":   {func(allowed, _ string) string { return allowed + "/link.yml" }, "a symbolic link leads out of it"},
		"out by a folder": {func(allowed, _ string) string { return allowed + "/folder/aws.yml" }, "a symbolic link leads out of it"},
		"a line break":    {func(allowed, _ string) string { return allowed + "/a\nb.yml" }, "without control characters"},
		"a flag":          {func(string, string) string { return "--help" }, "in none of the directories"},
		"a system file":   {func(string, string) string { return "/etc/passwd" }, "in none of the directories"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write("", "secret: hunter2")
			allowed := t.TempDir()
			for link, target := range map[string]string{"link.yml": s.config, "folder": s.dir} {
				if err := os.Symlink(target, filepath.Join(allowed, link)); err != nil {
					t.Fatal(err)
				}
			}
			s.opts.ConfigDirs = confine.Dirs{allowed}
			u := newUser(s)
			u.request.Spec.ConfigPath = test.path(allowed, s.config)
			_, observed := u.engine.Observe(t.Context(), u.request)
			applied := u.engine.Apply(t.Context(), u.request)
			for call, err := range map[string]error{"Observe": observed, "Apply": applied} {
				if !errors.Is(err, cluster.ErrInvalid) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %v", call, err)
				}
			}
			if calls := u.calls(); calls != "" {
				t.Errorf("rke was run: %s", calls)
			}
			// It can be deleted all the same: nothing was ever made.
			u.request.Deleting = true
			if seen, err := u.engine.Observe(t.Context(), u.request); err != nil || seen.Exists && seen.Waiting != "" {
				t.Errorf("its deletion waits for %q, %v", seen.Waiting, err)
			}
		})
	}
}

// What can be told from the path alone is refused before it is stored.
func TestRule(t *testing.T) {
	rule := rke.NewRule(confine.Dirs{"/etc/rke", "/srv/rke"})
	for _, test := range []struct{ name, path, want string }{
		{"in a directory", "/srv/rke/team/cluster.yml", ""},
		{"elsewhere", "/etc/passwd", "/etc/passwd: it is in none of the directories that users may name files in; clusters.rkeConfigDirs allows: /etc/rke, /srv/rke"},
		{"out by dots", "/etc/rke/../passwd", "/etc/rke/../passwd: it is in none of the directories that users may name files in; clusters.rkeConfigDirs allows: /etc/rke, /srv/rke"},
		{"a line break", "/etc/rke/a\n", "/etc/rke/a\n: it must be an absolute path without control characters; clusters.rkeConfigDirs allows: /etc/rke, /srv/rke"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var want error
			if test.want != "" {
				want = &cluster.FieldError{Field: "spec.configPath", Message: test.want}
			}
			if diff := cmp.Diff(want, rule(v1alpha1.ClusterSpec{ConfigPath: test.path})); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// In a directory that is allowed everything works as it does without limits.
func TestAConfigurationInAnAllowedDirectory(t *testing.T) {
	s := newSite(t)
	s.opts.ConfigDirs = confine.Dirs{filepath.Join(t.TempDir(), "none"), s.dir}
	u := newUser(s)
	if seen := u.up(); !seen.Applied || seen.KubeconfigPath == "" {
		t.Errorf("after up: %+v", seen)
	}
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	if seen := u.remove(); seen.Exists {
		t.Errorf("after remove, for which the configuration was put back: %+v", seen)
	}
	u.expectCalls("rke up --config aws.yml", "rke remove --force --config aws.yml")
}
