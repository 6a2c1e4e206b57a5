package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/node"
)

// desire is the desired state of a request.
type desire struct {
	spec    desiredSpec
	main    string // keelson-kube of the manager
	binary  string // of the components
	version string // of that
	hash    string // stands for spec; empty if nothing of the cluster exists yet
	config  string // spec without credentials

	simulated, real int           // numbers of nodes
	machine         *node.Machine // of the real ones; nil if there are none

	rotation string // the credentials that are asked for; empty if any will do
	stop     bool   // see cluster.Request

	snapshot    *etcdsnapshot.Record // of which the cluster is to be made; nil if it exists, or is made of nothing
	snapshotUID types.UID

	restore *cluster.Restore // nil if nothing is to be restored
}

// key identifies the desired state.
func (d desire) key() string {
	if d.stop {
		return stopKey
	}
	return d.hash + " " + d.rotation
}

// stopKey is the key of a cluster that is to be stopped, whatever the rest of its spec.
const stopKey = "stop"

// isApplied reports whether the desired state was applied last.
func (d desire) isApplied(was *applied) bool {
	return was.Hash == d.hash && (d.rotation == "" || was.Rotation == d.rotation)
}

// desiredSpec is the part of a spec that is applied.
type desiredSpec struct {
	Version   string                 `json:"version,omitempty"`
	APIServer *v1alpha1.APIServer    `json:"apiServer,omitempty"`
	Nodes     *v1alpha1.ClusterNodes `json:"nodes,omitempty"`
	Users     []v1alpha1.ClusterUser `json:"users,omitempty"`
	// Idle is true with spec.idle: the clients are watched.
	Idle bool `json:"idle,omitempty"`
}

// NewRule returns a check whether the engine supports a spec, whatever the state of the cluster. The addresses are those of
// Options. The error is a *cluster.FieldError.
func NewRule(addresses []netip.Prefix) cluster.Rule {
	return func(spec v1alpha1.ClusterSpec) error {
		if spec.APIServer == nil {
			return nil
		}
		if err := validateAddress(spec.APIServer.Address, addresses); err != nil {
			return err
		}
		if err := controlplane.CheckFlags(spec.APIServer.ExtraArgs); err != nil {
			return &cluster.FieldError{Field: "spec.apiServer.extraArgs", Message: err.Error()}
		}
		return nil
	}
}

// validateAddress returns an error unless the API may listen on an address.
func validateAddress(text string, allowed []netip.Prefix) error {
	const field = "spec.apiServer.address"
	if text == "" {
		return nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return &cluster.FieldError{Field: field, Message: fmt.Sprintf("%s: %v", field, err)}
	}
	isInside := func(network netip.Prefix) bool { return network.Contains(address) }
	if address.IsLoopback() || slices.ContainsFunc(allowed, isInside) {
		return nil
	}
	return &cluster.FieldError{Field: field, Message: fmt.Sprintf("%s: the manager does not allow %s: choose an address in a network of its flag "+
		"clusters.addressAllow, or leave the field out for 127.0.0.1", field, address)}
}

// newDesire validates a request.
func (e *Engine) newDesire(ctx context.Context, r cluster.Request) (desire, error) {
	d := desire{spec: desiredSpec{Version: r.Spec.Version, APIServer: r.Spec.APIServer, Nodes: r.Spec.Nodes, Users: r.Spec.Users, Idle: r.Spec.Idle != nil}, rotation: r.Rotation, stop: r.Stop, restore: r.Restore}
	if err := NewRule(e.opts.Addresses)(r.Spec); err != nil {
		return d, err
	}
	var err error
	if d.main, err = e.opts.Binary(); err != nil {
		return d, fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
	}
	if d.binary, d.version, err = e.versions.find(ctx, d.main, r.Spec.Version); err != nil {
		return d, err
	}
	if err := e.chooseNodes(&d); err != nil {
		return d, err
	}
	document, err := yaml.Marshal(d.spec)
	if err != nil {
		return d, err
	}
	if d.config, err = secrecy.Mask(document); err != nil {
		return d, err
	}
	d.hash, err = secrecy.Hash(filepath.Join(e.dir(r.UID), keyFile), document)
	return d, err
}

func (e *Engine) controlPlaneOptions(m *member, wanted desire) controlplane.Options {
	opts := controlplane.Options{
		Dir: e.dir(m.uid), Binary: wanted.binary, Simulator: wanted.main, Ephemeral: e.opts.Ephemeral, OwnServices: true,
		Nodes: wanted.simulated, RealNode: wanted.machine, RealNodes: wanted.real,
		Name: m.name, User: m.name + "-admin", Env: e.opts.Env, OpenEarly: true,
		QuotaBytes: e.opts.QuotaBytes, StorageInterval: e.opts.StorageInterval,
		Rotation: wanted.rotation, RotationOverlap: v1alpha1.DefaultCredentialsOverlap,
		Clock: e.opts.Clock, Log: e.opts.Log.WithValues("Cluster", m.name),
		Changed: func() { e.changed(m.name) },
		Replacing: func() {
			m.setReplacing(true)
			e.changed(m.name)
		},
		PortUser: func(server string) string { return e.portUser(m.uid, server) },
		Progress: func(s controlplane.Step) {
			if s.Done {
				return
			}
			m.describe("Starting " + s.Name)
		},
	}
	opts.Users = cluster.UsersOf(wanted.spec.Users)
	if api := wanted.spec.APIServer; api != nil {
		opts.Address, opts.Port, opts.CertSANs = api.Address, int(api.Port), api.CertSANs
		opts.APIServerArgs = controlplane.Flags(api.ExtraArgs)
	}
	return opts
}

// Files of the engine in the data directory of a cluster.
const (
	appliedFile = "applied.json"
	keyFile     = "hash.key"
	ownerFile   = "owner.json"
)

// applied is the last applied state, for the next manager.
type applied struct {
	Hash    string `json:"hash"`
	Config  string `json:"config"`
	Version string `json:"version"`
	// Rotation is the Request.Rotation of the last rotation of the credentials.
	Rotation string `json:"rotation,omitempty"`
}

// readApplied returns the last applied state, or nil if there is none.
func readApplied(dir string) (*applied, error) {
	data, err := os.ReadFile(filepath.Join(dir, appliedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last applied state: %w", err)
	}
	var was applied
	if err := json.Unmarshal(data, &was); err != nil || was.Hash == "" {
		return nil, nil // a damaged file counts as missing: the spec is applied again
	}
	return &was, nil
}

func writeApplied(dir string, d desire, rotation string) error {
	note := applied{Hash: d.hash, Config: d.config, Version: d.version, Rotation: rotation}
	if err := atomicfile.WriteJSON(filepath.Join(dir, appliedFile), note, atomicfile.Durable); err != nil {
		return fmt.Errorf("write the last applied state: %w", err)
	}
	return nil
}

// hasData reports whether a data directory contains an etcd database.
func hasData(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "etcd", "member"))
	return err == nil
}
