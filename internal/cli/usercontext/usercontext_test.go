package usercontext

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// useFile returns the access to a kubeconfig of the user that does not exist, and its path.
func useFile(t *testing.T) (clientcmd.ConfigAccess, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
	return clientcmd.NewDefaultPathOptions(), path
}

// Changes at the same time are all made, whichever comes first.
func TestChangesAtOnce(t *testing.T) {
	access, path := useFile(t)
	const number = 4
	add := func(name string) {
		if _, err := Add(access, name, &clientcmdapi.Cluster{Server: "https://" + name}, &clientcmdapi.AuthInfo{Token: name}, true); err != nil {
			t.Errorf("add %s: %v", name, err)
		}
	}
	for i := range number {
		add(fmt.Sprintf("old-%d", i))
	}
	var changing sync.WaitGroup
	for i := range number {
		changing.Go(func() { add(fmt.Sprintf("new-%d", i)) })
		changing.Go(func() {
			if err := Remove(access, fmt.Sprintf("old-%d", i), func(*clientcmdapi.Config) bool { return true }); err != nil {
				t.Error(err)
			}
		})
	}
	changing.Wait()
	got, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range number {
		old, name := fmt.Sprintf("old-%d", i), fmt.Sprintf("new-%d", i)
		if got.Contexts[name] == nil || got.Clusters[name] == nil || got.AuthInfos[name] == nil {
			t.Errorf("%s is lost", name)
		}
		if got.Contexts[old] != nil || got.Clusters[old] != nil || got.AuthInfos[old] != nil {
			t.Errorf("%s is back", old)
		}
	}
}

// The lock that a killed program has left is named. What changes nothing does not need it.
func TestLockThatStays(t *testing.T) {
	defer func(usual wait.Backoff) { backoff = usual }(backoff)
	backoff = wait.Backoff{Duration: time.Millisecond, Steps: 3}
	access, path := useFile(t)
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Add(access, "demo", &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}, true)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path+".lock") {
		t.Errorf("got %v", err)
	}
	if err := Remove(access, "demo", func(*clientcmdapi.Config) bool { return false }); err != nil {
		t.Errorf("a context of others: %v", err)
	}
}

// A kubeconfig that cannot be read is not one without the context.
func TestUnreadable(t *testing.T) {
	access, path := useFile(t)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, added := Add(access, "demo", &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}, true)
	removed := Remove(access, "demo", func(theirs *clientcmdapi.Config) bool { return theirs.Contexts["demo"] != nil })
	for _, err := range []error{added, removed} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
}
