package rke_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/rke"
	_ "github.com/keelson-dev/keelson/internal/process/shim" // before everything else: runs are shims of this program
	"github.com/keelson-dev/keelson/internal/testing/enginetest"
)

// binary is the stand-in for rke.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "keelson-rke-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "rke")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/keelson-dev/keelson/test/rke").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		code = max(code, 1)
	}
	os.Exit(code)
}

// site is a directory with a cluster.yml, and where the engine keeps its part.
type site struct {
	*testing.T
	dir, config string
	opts        rke.Options
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, dir: t.TempDir(), opts: rke.Options{Dir: filepath.Join(t.TempDir(), "rke"), Binary: binary, ConfigDirs: confine.Anywhere, Timeout: time.Minute}}
	s.config = filepath.Join(s.dir, "aws.yml")
	s.write("")
	return s
}

// write writes the cluster.yml, with a section standin.
func (s *site) write(traps string, more ...string) {
	s.Helper()
	text := "nodes:\n- address: 10.18.74.175\n  user: ops\n  role: [controlplane, worker, etcd]\n" + strings.Join(more, "\n") + "\n"
	if traps != "" {
		text += "standin: {" + traps + "}\n"
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// calls returns the command lines of rke, without the directory.
func (s *site) calls() string {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "aws.calls"))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(data), s.dir+"/", ""))
}

// left returns the files of rke and of the engine.
func (s *site) left(r cluster.Request) []string {
	var found []string
	for _, path := range []string{filepath.Join(s.dir, "aws.rkestate"), filepath.Join(s.dir, "kube_config_aws.yml"), filepath.Join(s.opts.Dir, string(r.UID))} {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}

func TestContract(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Place {
		s := newSite(t)
		return enginetest.Place{
			NewEngine: func() cluster.Engine { return rke.New(s.opts) },
			Spec:      v1alpha1.ClusterSpec{Engine: v1alpha1.EngineRKE, ConfigPath: s.config},
			Change:    func(*cluster.Request) { s.write("", "kubernetes_version: v1.28.15-rancher1-1") },
			Lose: func(r cluster.Request) {
				for _, path := range s.left(r) {
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
			},
			Left: s.left,
		}
	})
}
