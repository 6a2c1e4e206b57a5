package hosted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/snapshotfile"
)

// +kubebuilder:rbac:groups="",resources=pods/exec,verbs=create;get

// SaveSnapshot implements etcdsnapshot.Saver. A member of etcd sends it through the API server: no network connection to etcd is needed,
// and no room beside it.
func (e *Engine) SaveSnapshot(ctx context.Context, of snapshot.Source, file string) (saved etcdsnapshot.Saved, err error) {
	here := placeOf(cluster.Request{Name: of.Name, UID: of.UID, Spec: of.Spec})
	now, err := e.find(ctx, here)
	if err != nil {
		return saved, err
	}
	member := now.readyMember()
	if member == nil {
		return saved, fmt.Errorf("%w: no member of etcd is ready", snapshot.ErrNotRunning)
	}
	err = etcdsnapshot.WriteFile(file, func(to io.Writer) error {
		return e.exec(ctx, member, nil, to, append([]string{"/keelson-kube", "etcd-snapshot"}, etcdFlags()...)...)
	})
	if err != nil {
		return saved, err
	}
	last, err := now.restored()
	if err != nil {
		return saved, err
	}
	saved.Version, saved.Services = now.etcd.Annotations[annotationVersion], last.services()
	saved.Revision, err = snapshotfile.Inspect(ctx, file)
	return saved, err
}

// readyMember returns a ready Pod of etcd; nil if there is none.
func (f found) readyMember() *corev1.Pod {
	for i := range f.pods {
		if pod := &f.pods[i]; pod.Labels[labelComponent] == componentEtcd && pod.DeletionTimestamp.IsZero() && isReady(pod) {
			return pod
		}
	}
	return nil
}

// hasPod reports whether a component has a Pod that has not ended.
func (f found) hasPod(component string) bool {
	return slices.ContainsFunc(f.pods, func(pod corev1.Pod) bool { return pod.Labels[labelComponent] == component })
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// exec runs a command in the first container of a Pod, with an input unless it is nil, and copies what it prints.
func (e *Engine) exec(ctx context.Context, pod *corev1.Pod, stdin io.Reader, stdout io.Writer, command ...string) error {
	client, err := kubernetes.NewForConfig(e.opts.Config)
	if err != nil {
		return err
	}
	options := &corev1.PodExecOptions{Container: pod.Spec.Containers[0].Name, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true}
	url := client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(e.opts.Config, "GET", url.String())
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: &stderr})
	if said := strings.TrimSpace(stderr.String()); err != nil && said != "" {
		err = errors.New(said)
	}
	return explain(err, "run "+command[1]+" in", "Pod", pod)
}
