package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// queryTimeout limits the requests to the API for a report.
const queryTimeout = 5 * time.Second

// objects counts the objects of an instance by state, and has the version of its API.
type objects struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Machines   map[string]int `json:"machines,omitempty"`
	Clusters   map[string]int `json:"clusters,omitempty"`
	CronTabs   map[string]int `json:"cronTabs,omitempty"`
}

// queryObjects asks an API for its version and its objects. Kinds that are not installed are left out.
func queryObjects(ctx context.Context, config *rest.Config) (objects, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var found objects
	scheme, kinds := runtime.NewScheme(), runtime.NewSchemeBuilder(clusterv1alpha1.AddToScheme, stablev1.AddToScheme, vmv1alpha1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return found, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = queryTimeout
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return found, err
	}
	version, err := versions.ServerVersion()
	if err != nil {
		return found, fmt.Errorf("ask the API for its version: %w", err)
	}
	found.APIVersion = version.GitVersion
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return found, err
	}
	var machines vmv1alpha1.VirtualMachineList
	var clusters clusterv1alpha1.ClusterList
	var cronTabs stablev1.CronTabList
	for _, list := range []client.ObjectList{&machines, &clusters, &cronTabs} {
		if err := c.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return found, fmt.Errorf("list the objects: %w", err)
		}
	}
	found.Machines = count(machines.Items, func(vm *vmv1alpha1.VirtualMachine) string { return string(vm.Status.PrintableStatus) })
	found.Clusters = count(clusters.Items, func(c *clusterv1alpha1.Cluster) string { return string(c.Status.Phase) })
	found.CronTabs = count(cronTabs.Items, cronTabState)
	return found, nil
}

// count counts objects by state. One without a state is Pending.
func count[T any](items []T, state func(*T) string) map[string]int {
	counts := map[string]int{}
	for i := range items {
		counts[cmp.Or(state(&items[i]), "Pending")]++
	}
	return counts
}

// cronTabState returns the state of a CronTab in one word: what needs a user comes first.
func cronTabState(c *stablev1.CronTab) string {
	is := func(name string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(c.Status.Conditions, name, status)
	}
	switch {
	case is(stablev1.ConditionReady, metav1.ConditionFalse):
		return "NotReady"
	case is(stablev1.ConditionRunsStuck, metav1.ConditionTrue):
		return "Stuck"
	case is(stablev1.ConditionLastRunSucceeded, metav1.ConditionFalse):
		return "LastRunFailed"
	case c.Spec.Suspend != nil && *c.Spec.Suspend:
		return "Suspended"
	case is(stablev1.ConditionReady, metav1.ConditionTrue):
		return "Scheduled"
	}
	return ""
}

// describe returns counts for people, such as "2 Running, 1 Stopped".
func describe(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return strings.Join(parts, ", ")
}
