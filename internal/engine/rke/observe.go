package rke

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/process"
)

// desiredState is what a request asks for.
type desiredState struct {
	path    string // of the configuration, absolute
	content []byte
	hash    string // stands for the content; empty if nothing of the cluster exists yet
	masked  string // the content without credentials
}

// configPath returns the absolute path of the configuration, if it is in an allowed directory.
func (e *Engine) configPath(r cluster.Request) (string, error) {
	path, err := filepath.Abs(r.Spec.ConfigPath)
	if err != nil {
		return "", fmt.Errorf("%w: spec.configPath %s: %w", cluster.ErrConfig, r.Spec.ConfigPath, err)
	}
	if path, err = e.opts.ConfigDirs.Check(path); err != nil {
		return "", e.refused(r.Spec.ConfigPath, err)
	}
	return path, nil
}

// refused returns the error for a file outside of the allowed directories.
func (e *Engine) refused(path string, err error) error {
	return fmt.Errorf("%w: spec.configPath %s: %w; %s", cluster.ErrInvalid, path, err, allowed(e.opts.ConfigDirs))
}

// allowed describes the allowed directories.
func allowed(dirs confine.Dirs) string { return fmt.Sprintf("clusters.rkeConfigDirs allows: %s", dirs) }

// NewRule returns the rule of an engine with these directories for files. It does not read the file of a Cluster, which may be
// created later.
func NewRule(dirs confine.Dirs) cluster.Rule {
	return func(spec v1alpha1.ClusterSpec) error {
		path, err := filepath.Abs(spec.ConfigPath)
		if err == nil {
			_, err = dirs.Check(path)
		}
		if err != nil {
			return &cluster.FieldError{Field: "spec.configPath", Message: fmt.Sprintf("%s: %v; %s", spec.ConfigPath, err, allowed(dirs))}
		}
		return nil
	}
}

// kubeconfigPath returns the path to which rke writes the kubeconfig.
func kubeconfigPath(config string) string {
	return filepath.Join(filepath.Dir(config), "kube_config_"+filepath.Base(config))
}

// statePath returns the path of the state file of rke.
func statePath(config string) string {
	return strings.TrimSuffix(config, filepath.Ext(config)) + ".rkestate"
}

// newDesiredState reads and validates the configuration.
func (e *Engine) newDesiredState(r cluster.Request) (desiredState, error) {
	path, err := e.configPath(r)
	if err != nil {
		return desiredState{}, err
	}
	d := desiredState{path: path}
	if d.content, err = e.opts.ConfigDirs.ReadSecret(path); errors.Is(err, confine.ErrOutside) {
		return d, e.refused(path, err)
	}
	if err != nil {
		return d, fmt.Errorf("%w: the file %s cannot be used: %w. Put a cluster.yml for RKE there, on the host of the manager, or change spec.configPath", cluster.ErrConfig, path, err)
	}
	if d.masked, err = secrecy.Mask(d.content); err != nil {
		return d, fmt.Errorf("%w: the file %s cannot be used: %w", cluster.ErrConfig, path, err)
	}
	d.hash, err = secrecy.Hash(e.place(r.UID).key(), d.content)
	return d, err
}

// checkState returns an error if the state file of a provisioned cluster is missing. rke up would create a new certificate
// authority, which no node and no client of the cluster trusts.
func checkState(r cluster.Request, path string) error {
	if r.Applied == "" {
		return nil
	}
	if _, err := os.Stat(statePath(path)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing, which contains the certificate authorities of the cluster. Without it rke would create new ones and break the cluster: "+
			"restore it from a backup, or delete this Cluster", cluster.ErrStateMissing, statePath(path))
	}
	return nil
}

// Observe implements cluster.Engine.
func (e *Engine) Observe(_ context.Context, r cluster.Request) (cluster.Observation, error) {
	var seen cluster.Observation
	here := e.place(r.UID)
	last, status := here.last()
	seen.Exists = here.exists()
	seen.Attended = e.isAttended(r.UID)
	seen.Running = true // it has no processes of its own that could be down
	if r.Deleting {
		e.observeRemoval(&seen, r, last, status)
		return seen, nil
	}
	path, err := e.configPath(r)
	if err != nil {
		return seen, err
	}
	if data, err := e.opts.ConfigDirs.ReadSecret(kubeconfigPath(path)); err == nil {
		seen.Kubeconfig, seen.KubeconfigPath = data, kubeconfigPath(path)
		if access, err := kubeconfig.Parse(data); err == nil {
			seen.Endpoint = access.Server
		}
	}
	was := here.applied()
	if was != nil {
		seen.Config, seen.ConfigHash = was.Masked, was.Hash
	}
	wanted, err := e.newDesiredState(r)
	if last != nil && last.Command == commandUp {
		seen.Operation = newOperation(*last, status, wanted.hash)
		if seen.Operation.State == v1alpha1.OperationProcessing {
			seen.Poll = poll
			return seen, nil // even if the files have changed since
		}
	}
	isApplied := was != nil && was.Hash == wanted.hash && err == nil
	if _, missing := e.findBinary(); missing != nil && !isApplied {
		return seen, missing // takes precedence: nothing works without it
	}
	if err == nil {
		err = checkState(r, path)
	}
	if err != nil {
		return seen, err
	}
	seen.Applied, seen.Poll = isApplied, recheck
	return seen, nil
}

// newOperation returns the operation of a run.
func newOperation(last run, status process.Status, wanted string) *cluster.Operation {
	op := &cluster.Operation{
		Delete: last.Command == commandRemove, Stale: last.Command == commandUp && last.Hash != wanted,
		Began: last.Began, Ended: status.EndedAt,
	}
	how := outcomeOf(last, status)
	switch {
	case how.ok:
		op.State, op.Description = v1alpha1.OperationSucceeded, "rke "+last.Command+" has succeeded"
	case how.failure == "":
		op.State, op.Description = v1alpha1.OperationProcessing, progress(status.LogTail)
	default:
		op.State, op.Description, op.Err = v1alpha1.OperationFailed, how.failure, errors.New(how.failure)
		if op.Ended.IsZero() {
			op.Ended = op.Began
		}
	}
	return op
}
