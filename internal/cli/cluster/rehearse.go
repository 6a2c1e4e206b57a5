package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/rehearsal"
)

func newRehearse(flags *target.Flags) *cobra.Command {
	var r rehearse
	output := "text"
	cmd := &cobra.Command{
		Use:   "rehearse NAME",
		Short: "Rehearse an upgrade of a cluster in a copy of it",
		Long: `Report what an upgrade of a cluster to another Kubernetes version would reject or warn about. The cluster
does not change. The command takes a snapshot of it, and creates a new cluster with the other version from
that, without nodes: no Pods run there. It lists all objects there, and writes each one unchanged as a dry
run. Then it deletes the new cluster and the snapshot, also after Ctrl-C.

The result Refused means that objects are lost, or cannot be written after the upgrade; the exit code is
1 then. Unchecked is what a copy cannot tell, such as webhooks: their programs do not run there.`,
		Example: `  keelson cluster versions
  keelson cluster rehearse demo --version v1.36.3
  keelson cluster upgrade demo --version v1.36.3`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usage.Errorf("--output=%s: must be text or json", output)
			}
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			r.clusters, r.progress = c, cmd.ErrOrStderr()
			report, err := r.run(cmd.Context(), args[0])
			if report != nil { // also if the fork could not be deleted
				err = errors.Join(err, report.print(cmd.OutOrStdout(), output))
			}
			if err != nil {
				return err
			}
			if rehearsal.IsRefused(report.Findings) {
				return usage.ErrSilent
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&r.version, "version", "", "Kubernetes `version` of the upgrade, such as v1.36.3 (default: that of new clusters)")
	cmd.Flags().BoolVar(&r.viaProxy, "via-proxy", false, "reach both clusters through the management API, as keelson cluster kubeconfig --via-proxy")
	r.timeout = 10 * time.Minute
	cmd.Flags().Var(usage.Positive(&r.timeout), "timeout", "longest time for the rehearsal")
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

// rehearse is a rehearsal of an upgrade.
type rehearse struct {
	*clusters
	version  string
	viaProxy bool
	timeout  time.Duration
	progress io.Writer
}

// removalTimeout limits how long the deletion of the fork may take.
const removalTimeout = 3 * time.Minute

// run rehearses the upgrade of a Cluster. It leaves nothing; if it is killed, the fork expires, and the snapshot goes with it.
func (r *rehearse) run(ctx context.Context, name string) (_ *report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("not done within %v: raise --timeout", r.timeout))
	defer cancel()
	source, err := r.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := checkSource(source); err != nil {
		return nil, err
	}
	r.say("Reading what %s serves and stores", name)
	config, err := r.config(ctx, name)
	if err != nil {
		return nil, err
	}
	before, err := rehearsal.Take(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, cause(ctx, err))
	}
	fork, snapshot := newFork(source, r.version, rand.String(5), r.timeout)
	if err := r.Create(ctx, fork); err != nil {
		return nil, fmt.Errorf("create the cluster %s for the rehearsal: %w", fork.Name, err)
	}
	defer func() { err = errors.Join(err, r.remove(ctx, fork, snapshot)) }()
	findings, started, err := r.startFork(ctx, fork, snapshot)
	if err != nil {
		return nil, cause(ctx, err)
	}
	result := &report{Cluster: name, From: before.Version, To: cmp.Or(r.version, "the default version"), Findings: findings}
	if !started {
		return result, nil
	}
	if config, err = r.config(ctx, fork.Name); err != nil {
		return nil, err
	}
	r.say("Checking all objects in %s", fork.Name)
	after, err := rehearsal.Check(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", fork.Name, cause(ctx, err))
	}
	result.To, result.Resources, result.Objects = after.Version, len(after.Resources), after.Updated
	result.Findings = append(result.Findings, rehearsal.Compare(before, after)...)
	return result, nil
}

func (r *rehearse) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, format+"\n", args...) // nothing can be done about a closed stderr
}

// cause returns the reason for the end of a context instead of an error that follows from it.
func cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), context.Canceled):
		return errors.New("the rehearsal was interrupted")
	}
	return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
}

// checkSource returns an error unless the upgrade of a Cluster can be rehearsed.
func checkSource(source *v1alpha1.Cluster) error {
	if engine := source.Spec.EngineOrDefault(); engine == v1alpha1.EngineRKE {
		return fmt.Errorf("cluster %s has the engine %s, which has no snapshots: only clusters of the engines local and hosted can be rehearsed", source.Name, engine)
	}
	if !meta.IsStatusConditionTrue(source.Status.Conditions, v1alpha1.ConditionReady) || source.Status.Phase == v1alpha1.PhaseStopped {
		return fmt.Errorf("cluster %s is not ready, so no snapshot of it can be taken: %s", source.Name, describeStatus(source))
	}
	return nil
}

// newFork returns a Cluster and the snapshot that it is made of. It has no nodes, so that nothing runs, and expires.
func newFork(source *v1alpha1.Cluster, version, suffix string, timeout time.Duration) (*v1alpha1.Cluster, *v1alpha1.ClusterSnapshot) {
	name := strings.TrimRight(source.Name[:min(len(source.Name), 40)], "-.") + "-rehearsal-" + suffix
	labels := map[string]string{v1alpha1.LabelRehearsalOf: string(source.UID)}
	fork := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	fork.Spec = v1alpha1.ClusterSpec{
		Engine: v1alpha1.EngineLocal, Version: version,
		From:         &v1alpha1.ClusterSource{Snapshot: name},
		Nodes:        &v1alpha1.ClusterNodes{Simulated: ptr.To[int32](0)},
		ExpiresAfter: &metav1.Duration{Duration: (timeout + removalTimeout).Round(time.Second) + time.Minute},
	}
	if api := source.Spec.APIServer; api != nil && len(api.ExtraArgs) > 0 {
		fork.Spec.APIServer = &v1alpha1.APIServer{ExtraArgs: api.ExtraArgs} // flags and APIs, which the version may not have
	}
	snapshot := newClusterSnapshot(source.Name, name, time.Time{})
	snapshot.Labels = labels
	return fork, snapshot
}

// startFork takes the snapshot, and waits until the fork is ready. If it does not start with the flags of the source, that is a
// finding, and it is started without them.
func (r *rehearse) startFork(ctx context.Context, fork *v1alpha1.Cluster, snapshot *v1alpha1.ClusterSnapshot) (findings []rehearsal.Finding, started bool, err error) {
	snapshot.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Cluster", Name: fork.Name, UID: fork.UID,
	}}
	if err := r.Create(ctx, snapshot); err != nil {
		return nil, false, fmt.Errorf("create the snapshot %s for the rehearsal: %w", snapshot.Name, err)
	}
	if err := r.snapshots().Until(ctx, r.timeout, r.progress, snapshotKind.When(isTaken), snapshot.Name); err != nil {
		return nil, false, err
	}
	findings = []rehearsal.Finding{}
	for {
		refused, err := r.awaitFork(ctx, fork)
		if err != nil || refused == nil {
			return findings, err == nil, err
		}
		findings = append(findings, *refused)
		if fork.Spec.APIServer == nil {
			return findings, false, nil
		}
		r.say("%s does not start with spec.APIServer.extraArgs: going on without them", fork.Name)
		if err := r.dropFlags(ctx, fork); err != nil {
			return nil, false, err
		}
	}
}

// dropFlags removes the flags of the source from the fork, so that the rest can be checked.
func (r *rehearse) dropFlags(ctx context.Context, fork *v1alpha1.Cluster) error {
	was := fork.DeepCopy()
	fork.Spec.APIServer = nil
	return r.Patch(ctx, fork, client.MergeFrom(was))
}

// awaitFork waits until the fork is ready. It returns a finding if its components do not start.
func (r *rehearse) awaitFork(ctx context.Context, fork *v1alpha1.Cluster) (refused *rehearsal.Finding, err error) {
	err = object.Until(ctx, r.timeout, r.progress, func(ctx context.Context) (bool, string, error) {
		current, err := r.Find(ctx, fork.Name)
		if err != nil {
			return false, "", err
		}
		if refused, err = judgeFork(current); err != nil {
			return false, "", err
		}
		return refused != nil || isReady(current), describeStatus(current), nil
	})
	return refused, err
}

// judgeFork returns an error if a fork cannot be made, and a finding if its components do not start.
func judgeFork(fork *v1alpha1.Cluster) (*rehearsal.Finding, error) {
	provisioned := meta.FindStatusCondition(fork.Status.Conditions, v1alpha1.ConditionProvisioned)
	if provisioned == nil || provisioned.Status == metav1.ConditionTrue || provisioned.ObservedGeneration != fork.Generation {
		return nil, nil
	}
	switch provisioned.Reason {
	case v1alpha1.ReasonVersionNotAvailable, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonEngineNotAvailable:
		return nil, fmt.Errorf("the cluster cannot be copied: %s", provisioned.Message)
	case v1alpha1.ReasonProvisioningFailed:
		return &rehearsal.Finding{Result: rehearsal.Refused, Kind: "Cluster", Count: 1, What: strings.Join(strings.Fields(provisioned.Message), " "),
			Remedy: "Remove flags and APIs that the version does not have from spec.APIServer.extraArgs, before the upgrade"}, nil
	}
	return nil, nil
}

// config returns the configuration of a client of a Cluster.
func (r *rehearse) config(ctx context.Context, name string) (*rest.Config, error) {
	config, err := r.access(ctx, name)
	if err != nil {
		return nil, err
	}
	config.WarningHandler, config.QPS = rest.NoWarnings{}, -1 // the API server has priority and fairness
	return config, nil
}

func (r *rehearse) access(ctx context.Context, name string) (*rest.Config, error) {
	if r.viaProxy {
		proxied, err := proxied(r.API, name)
		if err != nil {
			return nil, err
		}
		return clientcmd.NewDefaultClientConfig(*proxied, nil).ClientConfig()
	}
	text, err := OfCluster(ctx, r, name)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of Cluster %s is invalid: %w", name, err)
	}
	return config, nil
}

// remove deletes the fork and the snapshot, also when the context has ended.
func (r *rehearse) remove(ctx context.Context, fork *v1alpha1.Cluster, snapshot *v1alpha1.ClusterSnapshot) error {
	r.say("Deleting %s", fork.Name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	err := client.IgnoreNotFound(r.Delete(ctx, fork, client.Preconditions{UID: &fork.UID}))
	err = errors.Join(err, client.IgnoreNotFound(r.Delete(ctx, snapshot)))
	if err == nil {
		err = object.Until(ctx, removalTimeout, r.progress, func(ctx context.Context) (bool, string, error) {
			gone, line, err := r.AreGone(ctx, fork)
			if err != nil || !gone {
				return false, line, err
			}
			err = r.Get(ctx, client.ObjectKeyFromObject(snapshot), &v1alpha1.ClusterSnapshot{})
			return err != nil, "The snapshot is being deleted", client.IgnoreNotFound(err)
		})
	}
	if err != nil {
		return fmt.Errorf("the Cluster and the ClusterSnapshot %s are not deleted yet, and expire %v after their creation: %w", fork.Name, fork.Spec.ExpiresAfter.Duration, err)
	}
	return nil
}
