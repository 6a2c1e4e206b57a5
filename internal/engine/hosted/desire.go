package hosted

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/pki"
)

// desire is the desired control plane of a request.
type desire struct {
	spec desiredSpec
	// image is the image of keelson-kube with the version.
	image string
	// replicas is the number of members of etcd, and of API servers when all run; apiServers is that of API servers now.
	replicas, apiServers int32
	// certSANs are additional names in the certificate of the API, flags additional flags of kube-apiserver.
	certSANs, flags []string
	storage         v1alpha1.HostedStorage
	// services are the networks of Services, separated by a comma.
	services string
	users    []pki.User
	// rotation requests new credentials for the administrator if it differs from that of the last rotation; empty requests nothing.
	rotation string
}

// desiredSpec is the part of a spec that is applied.
type desiredSpec struct {
	Version   string                       `json:"version"`
	Image     string                       `json:"image"`
	Hosted    *v1alpha1.HostedControlPlane `json:"hosted"`
	APIServer *v1alpha1.APIServer          `json:"apiServer,omitempty"`
	Users     []v1alpha1.ClusterUser       `json:"users,omitempty"`
}

// stopKey is the key of a cluster that is to be stopped, whatever the rest of its spec.
const stopKey = "stop"

// NewRule returns a check whether the engine supports a spec, whatever the state of the cluster. The error is a *cluster.FieldError.
func NewRule() cluster.Rule {
	return func(spec v1alpha1.ClusterSpec) error {
		for _, unsupported := range []struct {
			field string
			isSet bool
		}{
			{"spec.nodes", spec.Nodes != nil}, {"spec.idle", spec.Idle != nil},
			{"spec.apiServer.address", spec.APIServer != nil && spec.APIServer.Address != ""}, {"spec.apiServer.port", spec.APIServer != nil && spec.APIServer.Port != 0},
		} {
			if unsupported.isSet {
				return &cluster.FieldError{Field: unsupported.field, Message: fmt.Sprintf("the engine hosted does not support %s", unsupported.field)}
			}
		}
		if spec.APIServer != nil {
			if err := controlplane.CheckFlags(spec.APIServer.ExtraArgs); err != nil {
				return &cluster.FieldError{Field: "spec.apiServer.extraArgs", Message: err.Error()}
			}
		}
		return nil
	}
}

// newDesire validates a request.
func (e *Engine) newDesire(r cluster.Request) (desire, error) {
	if err := NewRule()(r.Spec); err != nil {
		return desire{}, err
	}
	version, image, err := e.imageOf(r.Spec.Version)
	if err != nil {
		return desire{}, err
	}
	hosted := r.Spec.Hosted
	d := desire{
		spec:  desiredSpec{Version: version, Image: image, Hosted: hosted, APIServer: r.Spec.APIServer, Users: r.Spec.Users},
		users: cluster.UsersOf(r.Spec.Users), rotation: r.Rotation,
		image: image, replicas: ptr.Deref(hosted.Replicas, 1), storage: ptr.Deref(hosted.Storage, v1alpha1.HostedStorage{}),
	}
	d.apiServers = d.replicas
	if api := r.Spec.APIServer; api != nil {
		d.certSANs, d.flags = api.CertSANs, controlplane.Flags(api.ExtraArgs)
	}
	return d, nil
}

// firstService returns the address of the Service kubernetes; empty if the networks of Services are damaged.
func (d desire) firstService() string {
	network, _, _ := strings.Cut(d.services, ",")
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return ""
	}
	return prefix.Addr().Next().String()
}

// imageOf returns the image of a version, by default of the newest one.
func (e *Engine) imageOf(wanted string) (found, image string, err error) {
	known := slices.SortedFunc(maps.Keys(e.opts.Images), func(a, b string) int {
		compared, _ := version.MustParseSemantic(a).Compare(b) // they are valid: the configuration was checked
		return compared
	})
	if len(known) == 0 {
		return "", "", fmt.Errorf("%w: the manager has no images of control planes: set clusters.hostedImages in its configuration", cluster.ErrUnavailable)
	}
	found = cmp.Or(wanted, known[len(known)-1])
	if image = e.opts.Images[found]; image == "" {
		return "", "", fmt.Errorf("%w: the manager has no image of %s: choose one of %s, or add it to clusters.hostedImages in its configuration",
			cluster.ErrVersion, found, strings.Join(known, ", "))
	}
	return found, image, nil
}

// describe returns a keyed hash that identifies the desired control plane, and its configuration without credentials.
func (d desire) describe(key []byte) (hash, config string, err error) {
	document, err := yaml.Marshal(d.spec)
	if err != nil {
		return "", "", err
	}
	if config, err = secrecy.Mask(document); err != nil {
		return "", "", err
	}
	return secrecy.Sum(key, document), config, nil
}
