//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// layerUsers returns how many nodes use each of the shared layers of images.
func (u *user) layerUsers(t *testing.T) (users []int) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(node.LayersDir(u.data), "*", "fs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		info, err := os.Stat(filepath.Join(filepath.Dir(folder), "used"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is being deleted
		}
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, int(info.Sys().(*syscall.Stat_t).Nlink)-1)
	}
	return users
}

// sharesLayers has each node pull an image from a registry: its layer is downloaded once, and on the disk once.
func sharesLayers(t *testing.T, u *user) {
	folder := filepath.Join(u.home, "shared")
	writeLayout(t, folder, "v9")
	var downloads atomic.Int32
	registry, _ := u.serve(t, countLayers(folder, registryOf(t, folder), &downloads), false)
	before := len(u.layerUsers(t))
	for index := range 3 {
		u.describeRegistryTo(t, index, registry, fmt.Sprintf("server = \"http://%s\"\n", registry), nil)
		pod := fmt.Sprintf("pulls-%d", index)
		u.kubectl(t, "run", pod, "--image="+registry+"/app:v1", "--restart=Never", "--overrides", `{"spec":{"nodeName":"`+node.Name(index)+`"}}`, "--", "say", "pulled")
		u.Until(t, "it has run", transcript.Is("Succeeded"), "kubectl", "get", "pod", pod, "-o", "jsonpath={.status.phase}")
		u.kubectl(t, "delete", "pod", pod)
	}
	if n := downloads.Load(); n != 1 {
		t.Errorf("the layer was downloaded %d times", n)
	}
	users := u.layerUsers(t)
	if len(users) != before+1 {
		t.Errorf("%d layers are shared, and %d before", len(users), before)
	}
	for _, n := range users {
		if n != 3 {
			t.Errorf("%d of 3 nodes use a layer", n)
		}
	}
}

// countLayers counts the downloads of large files.
func countLayers(folder string, registry http.Handler, downloads *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		digest := strings.Replace(filepath.Base(r.URL.Path), ":", "/", 1)
		if info, err := os.Stat(filepath.Join(folder, "blobs", digest)); err == nil && info.Size() > 100<<10 && r.Method == http.MethodGet {
			downloads.Add(1)
		}
		registry.ServeHTTP(w, r)
	})
}
