package controlplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/pki"
)

// User is a user of the API with a kubeconfig of its own.
//
// Kubernetes cannot revoke a certificate. Therefore each user has a CA of its own, which signs only certificates of that user, and
// kube-apiserver trusts the CAs of the present users. It reloads their file, so that a user is revoked by removing the CA. New
// groups, another lifetime and another rotation have a new CA: certificates of before are rejected.
type User struct {
	// Name is the name of the user, a DNS label, and Groups are its groups.
	Name   string
	Groups []string
	// TTL is the lifetime of the certificate. 0 means a year.
	TTL time.Duration
	// Rotation requests new credentials if it changes.
	Rotation string
}

// userPrefix is the prefix of the names of the files of users in pki/, and usersDir the directory of their kubeconfigs.
const (
	userPrefix = "user-"
	usersDir   = "users"
)

// reloadTimeout is the longest time until kube-apiserver trusts a new CA: it looks at the file once a minute even if it missed its change.
const reloadTimeout = 2 * time.Minute

// file names the files of the certificate of a user, and authority those of its CA.
func (u User) file() string {
	sum := sha256.New()
	for _, part := range append([]string{u.Rotation, u.TTL.String()}, slices.Sorted(slices.Values(u.Groups))...) {
		fmt.Fprintf(sum, "%q ", part)
	}
	return userPrefix + u.Name + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

func (u User) authority() string { return u.file() + ".ca" }

// userCertificates returns the certificates of users, each after its CA.
func userCertificates(users []User) []pki.Certificate {
	var all []pki.Certificate
	for _, u := range users {
		own := pki.NewClient(u.file(), u.authority(), u.Name, u.Groups...)
		own.Lifetime = cmp.Or(u.TTL, pki.LeafLifetime)
		all = append(all, pki.NewAuthority(u.authority(), "keelson-user-"+u.Name), own)
	}
	return all
}

// renewalInterval returns the interval at which the certificates are checked, which are renewed when half of their lifetime is over.
func (cp *ControlPlane) renewalInterval() time.Duration {
	interval := renewalInterval
	for _, u := range cp.opts.Users {
		interval = min(interval, cmp.Or(u.TTL, pki.LeafLifetime)/8)
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
		for _, name := range []string{u.file(), u.authority()} {
			kept[name+".crt"], kept[name+".key"] = true, true
		}
	}
	return errors.Join(
		removeOthers(cp.dir.path(usersDir), "", kept),
		removeOthers(cp.dir.path("pki"), userPrefix, kept))
}

func (cp *ControlPlane) writeUserLocked(u User) error {
	if err := os.MkdirAll(cp.dir.path(usersDir), 0o700); err != nil {
		return err
	}
	var data [3][]byte
	for i, name := range []string{"ca.crt", u.file() + ".crt", u.file() + ".key"} {
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
		config.CertFile, config.KeyFile = cp.dir.pki(u.file()+".crt"), cp.dir.pki(u.file()+".key")
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
