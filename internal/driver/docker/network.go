package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// networkName returns the name of the network that the machines of a namespace share. It
// contains the UID of the cluster, because several clusters may use one engine.
func networkName(id backend.Identity) string {
	return "keelson-" + string(id.Cluster) + "-" + id.Namespace
}

func networkLabels(id backend.Identity) map[string]string {
	return map[string]string{labelCluster: string(id.Cluster), labelNamespace: id.Namespace}
}

func (d *Driver) lockNetworks(ctx context.Context) error {
	if err := d.networking.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for another operation on networks: %w: %w", backend.ErrUnavailable, err)
	}
	return nil
}

// networks returns the networks of a namespace, and whether a network without the labels has the
// same name. Engines before API 1.44 accept duplicate names, so a manager that is killed during a
// create can leave more than one.
func (d *Driver) networks(ctx context.Context, id backend.Identity) (ours []network.Summary, foreign bool, err error) {
	found, err := d.engine.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("name", networkName(id))})
	if err != nil {
		return nil, false, d.typed("list networks", err)
	}
	for _, n := range found.Items {
		switch {
		case n.Name != networkName(id): // the filter also matches substrings
		case n.Labels[labelCluster] == string(id.Cluster) && n.Labels[labelNamespace] == id.Namespace:
			ours = append(ours, n)
		default:
			foreign = true
		}
	}
	return ours, foreign, nil
}

// ensureNetwork creates the network of a namespace unless it exists. The caller holds d.networking
// until a container refers to the network; otherwise releaseNetwork could remove it.
func (d *Driver) ensureNetwork(ctx context.Context, id backend.Identity) error {
	found, foreign, err := d.networks(ctx, id)
	if err != nil {
		return err
	}
	if foreign {
		return fmt.Errorf("the network %s exists and was not created by Keelson: remove or rename it", networkName(id))
	}
	if len(found) == 0 {
		if _, err := d.engine.NetworkCreate(ctx, networkName(id), client.NetworkCreateOptions{Driver: "bridge", Labels: networkLabels(id)}); err != nil {
			return d.networkError(id, err)
		}
		step("network created")
		return nil
	}
	// No container starts in a network with an ambiguous name, so only the oldest one is in use.
	slices.SortFunc(found, func(a, b network.Summary) int { return a.Created.Compare(b.Created) })
	for _, duplicate := range found[1:] {
		if _, err := d.engine.NetworkRemove(ctx, duplicate.ID, client.NetworkRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
			return d.typed("remove a duplicate of the network "+duplicate.Name, err)
		}
	}
	return nil
}

// networkError explains why a network cannot be created.
func (d *Driver) networkError(id backend.Identity, err error) error {
	text := err.Error()
	if strings.Contains(text, "non-overlapping") || strings.Contains(text, "fully subnetted") {
		return fmt.Errorf("the Docker engine has no address range left for the network of namespace %s: each namespace with machines "+
			"needs one. Remove unused networks (docker network prune), or add default-address-pools to the engine's daemon.json: %w", id.Namespace, err)
	}
	return d.typed("create the network "+networkName(id), err)
}

// releaseNetwork removes the network of a namespace that has no machines.
func (d *Driver) releaseNetwork(ctx context.Context, id backend.Identity) error {
	if id.Namespace == "" {
		return nil // nothing was created
	}
	if err := d.lockNetworks(ctx); err != nil {
		return err
	}
	defer d.networking.Release(1)
	containers, err := d.containers(ctx)
	if err != nil {
		return err
	}
	for i := range containers {
		if other := identityOf(containers[i].Labels); other.Namespace == id.Namespace && other.Cluster == id.Cluster {
			return nil
		}
	}
	found, _, err := d.networks(ctx, id)
	if err != nil {
		return err
	}
	for _, n := range found {
		_, err := d.engine.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		switch {
		case err == nil || cerrdefs.IsNotFound(err):
		case cerrdefs.IsPermissionDenied(err) || cerrdefs.IsConflict(err):
			// Deleting the next last machine of the namespace tries again.
			d.options.Log.Info("Not removing the network of a namespace without machines: containers that are not Keelson's use it",
				"network", n.Name, "reason", err.Error())
		default:
			return d.typed("remove the network "+n.Name, err)
		}
	}
	step("network released")
	return nil
}
