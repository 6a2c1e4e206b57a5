package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/pki"
)

// usersDir is the directory of the kubeconfigs of users.
const usersDir = "users"

// reloadTimeout is the longest time until kube-apiserver trusts a new CA: it looks at the file once a minute even if it missed its change.
const reloadTimeout = 2 * time.Minute

// renewalInterval returns the interval at which the certificates are checked, which are renewed when half of their lifetime is over.
func (cp *ControlPlane) renewalInterval() time.Duration {
	interval := renewalInterval
	for _, u := range cp.opts.Users {
		interval = min(interval, u.Lifetime()/8)
	}
	return interval
}

// userKubeconfig returns the path of the kubeconfig of a user.
func (l layout) userKubeconfig(name string) string { return l.path(usersDir, name+".kubeconfig") }

// UserKubeconfig returns the kubeconfig of a user of the control plane in a data directory. The error is fs.ErrNotExist if it has none.
func UserKubeconfig(dir, name string) ([]byte, error) {
	return os.ReadFile(layout(dir).userKubeconfig(name))
}

// writeUsersLocked writes the kubeconfigs of the users, and removes the files of all others.
func (cp *ControlPlane) writeUsersLocked() error {
	kept := map[string]bool{}
	for _, u := range cp.opts.Users {
		if err := cp.writeUserLocked(u); err != nil {
			return fmt.Errorf("kubeconfig of the user %s: %w", u.Name, err)
		}
		kept[filepath.Base(cp.dir.userKubeconfig(u.Name))] = true
		for _, name := range []string{u.Certificate(), u.Authority()} {
			kept[name+".crt"], kept[name+".key"] = true, true
		}
	}
	return errors.Join(
		removeOthers(cp.dir.path(usersDir), "", kept),
		removeOthers(cp.dir.path("pki"), pki.UserPrefix, kept))
}

func (cp *ControlPlane) writeUserLocked(u pki.User) error {
	if err := os.MkdirAll(cp.dir.path(usersDir), 0o700); err != nil {
		return err
	}
	var data [3][]byte
	for i, name := range []string{"ca.crt", u.Certificate() + ".crt", u.Certificate() + ".key"} {
		var err error
		if data[i], err = os.ReadFile(cp.dir.pki(name)); err != nil {
			return err
		}
	}
	cluster := &clientcmdapi.Cluster{Server: cp.state.server(), CertificateAuthorityData: data[0]}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: data[1], ClientKeyData: data[2]}
	return writeKubeconfig(cp.dir.userKubeconfig(u.Name), cmp.Or(cp.opts.Name, defaultName), cluster, user)
}

// awaitUsers waits until kube-apiserver accepts the certificates of the users. One that was running already trusts the CA of a new
// user when it has reloaded the file.
func (cp *ControlPlane) awaitUsers(ctx context.Context) error {
	config := cp.Config()
	for _, u := range cp.opts.Users {
		config.CertFile, config.KeyFile = cp.dir.pki(u.Certificate()+".crt"), cp.dir.pki(u.Certificate()+".key")
		err := await(ctx, "the kubeconfig of the user "+u.Name, 50*time.Millisecond, reloadTimeout, func(ctx context.Context) error {
			return readyz(ctx, config)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeOthers removes the files of a directory with a prefix, except those that are kept.
func removeOthers(dir, prefix string, kept map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) && !kept[entry.Name()] {
			err = errors.Join(err, removeIfExists(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}
