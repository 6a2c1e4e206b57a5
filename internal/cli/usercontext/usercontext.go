// Package usercontext adds contexts to the user's own kubeconfig, and removes them.
package usercontext

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
)

// Read returns the kubeconfig of the user, which is empty if there is none.
func Read(access clientcmd.ConfigAccess) (*clientcmdapi.Config, error) {
	theirs, err := access.GetStartingConfig()
	if err != nil {
		return nil, fmt.Errorf("read your kubeconfig: %w", err)
	}
	return theirs, nil
}

// Add adds a context with a cluster and a user, all three called name, to the kubeconfig of the user. Entries of this name are
// replaced, but for the namespace of the context. It becomes the current context with current, or if there is none. Add returns
// the file with the context; "" if that is the default one.
func Add(access clientcmd.ConfigAccess, name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, current bool) (file string, err error) {
	err = change(access, func(theirs *clientcmdapi.Config) bool {
		cluster, user, context := cluster.DeepCopy(), user.DeepCopy(), &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		// Each entry is written to the file that it comes from; a new one, without an origin, to the user's first file.
		cluster.LocationOfOrigin, user.LocationOfOrigin = "", ""
		if old := theirs.Clusters[name]; old != nil {
			cluster.LocationOfOrigin = old.LocationOfOrigin
		}
		if old := theirs.AuthInfos[name]; old != nil {
			user.LocationOfOrigin = old.LocationOfOrigin
		}
		if old := theirs.Contexts[name]; old != nil {
			context.LocationOfOrigin, context.Namespace = old.LocationOfOrigin, old.Namespace
		}
		theirs.Clusters[name], theirs.AuthInfos[name], theirs.Contexts[name] = cluster, user, context
		if current || theirs.CurrentContext == "" {
			theirs.CurrentContext = name
		}
		file = context.LocationOfOrigin
		return true
	})
	if err != nil {
		return "", fmt.Errorf("add the context %s to your kubeconfig: %w", name, err)
	}
	return file, nil
}

// Remove removes the entries of Add from the kubeconfig of the user if isOurs returns true for it.
func Remove(access clientcmd.ConfigAccess, name string, isOurs func(*clientcmdapi.Config) bool) error {
	err := change(access, func(theirs *clientcmdapi.Config) bool {
		if !isOurs(theirs) {
			return false
		}
		delete(theirs.Clusters, name)
		delete(theirs.AuthInfos, name)
		delete(theirs.Contexts, name)
		if theirs.CurrentContext == name {
			theirs.CurrentContext = ""
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("remove the context %s from your kubeconfig: %w", name, err)
	}
	return nil
}

// backoff is that of attempts to change a kubeconfig: half a minute. Other programs lock it for milliseconds.
var backoff = wait.Backoff{Duration: 10 * time.Millisecond, Jitter: 1, Steps: 2000}

// errChanged means that a kubeconfig is not the one that was read before.
var errChanged = errors.New("your kubeconfig is changed by other programs all the time; try again")

// change changes the kubeconfig of the user; apply returns false if it is to stay as it is. apply is called again for one that
// another program has changed meanwhile.
func change(access clientcmd.ConfigAccess, apply func(*clientcmdapi.Config) bool) error {
	seen, unread := access.GetStartingConfig()
	if unread != nil {
		seen = clientcmdapi.NewConfig() // another program may be writing it; it is read again with the lock
	}
	err := retry.OnError(backoff, func(err error) bool { return errors.Is(err, fs.ErrExist) || errors.Is(err, errChanged) }, func() error {
		changed := seen.DeepCopy()
		if !apply(changed) {
			return unread // without the lock, which needs a directory that can be written to
		}
		err := clientcmd.ModifyConfig(&unchanged{ConfigAccess: access, seen: &seen}, *changed, false)
		if errors.Is(err, errChanged) {
			unread = nil
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: another program has locked it; if none does, remove this file", err)
	}
	return err
}

// unchanged is a ConfigAccess for ModifyConfig, which calls GetStartingConfig when it has the lock. If that does not return what was
// seen before, what it would write is out of date.
type unchanged struct {
	clientcmd.ConfigAccess
	seen    **clientcmdapi.Config
	checked bool
}

// GetStartingConfig implements clientcmd.ConfigAccess. The first call fails with errChanged if the config is not the one that was
// seen, and replaces that.
func (u *unchanged) GetStartingConfig() (*clientcmdapi.Config, error) {
	now, err := u.ConfigAccess.GetStartingConfig()
	if err == nil && !u.checked && !reflect.DeepEqual(now, *u.seen) {
		*u.seen = now
		return nil, errChanged
	}
	u.checked = true
	return now, err
}
