package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/drain"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// Real nodes are added and removed while the control plane runs. Commands write what is wanted: to add a node, its index to the file
// layout.nodeSet; to remove it, a file beside its directory. keepNodes does what is missing, and continues a removal that was interrupted.

// nodeSetInterval is the interval at which the file is read.
const nodeSetInterval = 500 * time.Millisecond

// readNodeSet returns the indexes of the wanted nodes; none if there is no file.
func readNodeSet(dir layout) (indexes []int, err error) {
	data, err := os.ReadFile(dir.nodeSet())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &indexes); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", dir.nodeSet(), err)
	}
	slices.Sort(indexes)
	indexes = slices.Compact(indexes)
	if len(indexes) == 0 || indexes[0] != 0 || indexes[len(indexes)-1] >= node.MaxNodes {
		return nil, fmt.Errorf("%s is damaged: it must have the indexes of nodes from 0 to %d", dir.nodeSet(), node.MaxNodes-1)
	}
	return indexes, nil
}

func writeNodeSet(dir layout, indexes []int) error {
	data, err := json.Marshal(indexes)
	if err != nil {
		return err
	}
	return updateFile(dir.nodeSet(), append(data, '\n'), atomicfile.Durable)
}

// NodeIndexes returns the indexes of the wanted real nodes of a data directory; none if it has never had any.
func NodeIndexes(path string) ([]int, error) { return readNodeSet(layout(path)) }

// ChangeNodes changes the wanted real nodes of a data directory whose control plane runs, which then adds new ones. node.RequestRemoval
// removes one.
func ChangeNodes(path string, change func(indexes []int) ([]int, error)) error {
	dir := layout(path)
	lock, err := os.OpenFile(dir.nodeSet()+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	indexes, err := readNodeSet(dir)
	if err != nil {
		return err
	}
	if indexes, err = change(indexes); err != nil {
		return err
	}
	return writeNodeSet(dir, indexes)
}

// chooseNodes returns the indexes of the nodes to run: as many as requested, or those that run since an earlier start if they are
// as many. Those that are being removed are not among them.
func (cp *ControlPlane) chooseNodes() (indexes []int, adopted bool, err error) {
	kept, err := readNodeSet(cp.dir)
	if err != nil {
		return nil, false, err
	}
	for _, index := range kept {
		p, err := cp.procs.Find(numbered(nameNode, index))
		adopted = adopted || err == nil && p.Status().State == process.Running
	}
	if adopted && len(kept) == cp.opts.RealNodes {
		return slices.DeleteFunc(kept, cp.isBeingRemoved), true, nil
	}
	for index := 0; index < node.MaxNodes && len(indexes) < cp.opts.RealNodes; index++ {
		if !cp.isBeingRemoved(index) {
			indexes = append(indexes, index)
		}
	}
	return indexes, false, writeNodeSet(cp.dir, indexes)
}

// realNodes returns the settings of the real nodes.
func (cp *ControlPlane) realNodes() []node.Settings {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.nodes)
}

// hasNode reports whether there is a real node with this index.
func (cp *ControlPlane) hasNode(index int) bool {
	return slices.ContainsFunc(cp.realNodes(), func(s node.Settings) bool { return s.Index == index })
}

// isBeingRemoved reports whether something is left of a node that is to be removed. The first one never is.
func (cp *ControlPlane) isBeingRemoved(index int) bool {
	return index > 0 && node.IsBeingRemoved(node.Dir(string(cp.dir), index))
}

// keepNodes adds and removes nodes until they are the wanted ones, until the context ends.
func (cp *ControlPlane) keepNodes(ctx context.Context, client kubernetes.Interface) {
	reported := ""
	for pause(ctx, nodeSetInterval) {
		err := cp.changeNodes(ctx, client)
		if err == nil {
			reported = ""
			continue
		}
		if ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			cp.opts.Log.Error(err, "Failed to add or remove a real node, will retry", "interval", nodeSetInterval.String())
		}
	}
}

func (cp *ControlPlane) changeNodes(ctx context.Context, client kubernetes.Interface) error {
	wanted, err := readNodeSet(cp.dir)
	if err != nil || wanted == nil {
		return err
	}
	var errs []error
	for _, index := range wanted {
		if !cp.hasNode(index) && !cp.isBeingRemoved(index) {
			errs = append(errs, cp.addNode(index, len(wanted)))
		}
	}
	for index := range node.MaxNodes {
		if cp.isBeingRemoved(index) {
			errs = append(errs, cp.removeNode(ctx, client, cp.realNodes()[0].At(string(cp.dir), index)))
		}
	}
	return errors.Join(errs...)
}

// addNode starts one more node. The other nodes keep their shares of the host until they are started again.
func (cp *ControlPlane) addNode(index, count int) error {
	cp.mu.Lock()
	s := cp.nodes[0].At(string(cp.dir), index)
	s.Nodes = count
	cp.nodes = append(slices.Clone(cp.nodes), s)
	slices.SortFunc(cp.nodes, func(a, b node.Settings) int { return a.Index - b.Index })
	cp.state.RealNodes = max(cp.state.RealNodes, index+1)
	err := errors.Join(saveState(cp.dir, cp.state), cp.writeNodeSettings())
	cp.mu.Unlock()
	if err == nil {
		err = cp.renewOnce()
	}
	if err == nil {
		err = cp.launchNode(s)
	}
	if err != nil {
		cp.forgetNode(index) // the next attempt begins again
		return fmt.Errorf("add the node %s: %w", s.Name, err)
	}
	cp.opts.Log.Info("Added a real node", "node", s.Name)
	return nil
}

func (cp *ControlPlane) forgetNode(index int) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.nodes = slices.DeleteFunc(slices.Clone(cp.nodes), func(s node.Settings) bool { return s.Index == index })
}

// removeNode stops a node and deletes all that it has: its volumes, its Node with its Lease, its files and its certificates. Its links go
// with its network namespace. Any of it may have been done before, by a program that was killed; the last step says that nothing is left.
func (cp *ControlPlane) removeNode(ctx context.Context, client kubernetes.Interface, s node.Settings) error {
	name := numbered(nameNode, s.Index)
	cp.mu.Lock()
	c := cp.launched[name]
	cp.mu.Unlock()
	if c != nil {
		c.end()
	}
	if err := stopRecorded(ctx, cp.procs, name, waitTimeout(name)); err != nil {
		return fmt.Errorf("remove the node %s: %w", s.Name, err)
	}
	if err := errors.Join(node.Clean(ctx, s.Dir), deleteVolumes(ctx, client, s.Name), deleteNode(ctx, client, s.Name), cp.removeNodeFiles(ctx, s.Index),
		cp.opts.RealNode.SweepLayers(s.Layers)); err != nil {
		return fmt.Errorf("remove the node %s: %w", s.Name, err)
	}
	err := cp.procs.Remove(name)
	if err != nil && !errors.Is(err, process.ErrNotFound) {
		return fmt.Errorf("remove the node %s: %w", s.Name, err)
	}
	cp.mu.Lock()
	delete(cp.launched, name)
	delete(cp.state.Commands, name)
	err = saveState(cp.dir, cp.state)
	cp.mu.Unlock()
	cp.forgetNode(s.Index)
	if err == nil {
		err = ChangeNodes(string(cp.dir), func(indexes []int) ([]int, error) {
			return slices.DeleteFunc(indexes, func(index int) bool { return index == s.Index }), nil
		})
	}
	if err == nil {
		err = node.ConcludeRemoval(s.Dir)
	}
	if err != nil {
		return fmt.Errorf("remove the node %s: %w", s.Name, err)
	}
	cp.opts.Log.Info("Removed a real node", "node", s.Name)
	return nil
}

// deleteVolumes deletes the PersistentVolumes of a node that is removed. Otherwise the node does, when their claims are deleted. A volume whose
// claim still exists stays until then.
func deleteVolumes(ctx context.Context, client kubernetes.Interface, name string) error {
	volumes, err := drain.Volumes(ctx, client, name)
	errs := []error{err}
	for i := range volumes {
		errs = append(errs, ignoreNotFound(client.CoreV1().PersistentVolumes().Delete(ctx, volumes[i].Name, metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

// deleteNode deletes the Node of a node that does not run any more, and its Pods, which otherwise stay for about a minute.
func deleteNode(ctx context.Context, client kubernetes.Interface, name string) error {
	if err := ignoreNotFound(client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		errs = append(errs, ignoreNotFound(client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))))
	}
	return errors.Join(errs...)
}

// removeNodeFiles deletes the files of a node.
func (cp *ControlPlane) removeNodeFiles(ctx context.Context, index int) error {
	errs := []error{
		removeAll(ctx, node.Dir(string(cp.dir), index)),
		removeIfExists(cp.dir.path("peers", strconv.Itoa(index)+".json")), removeIfExists(cp.dir.log(numbered(nameNode, index))),
	}
	for _, name := range []string{numbered(nameKubeletServer, index), numbered(nameKubeletClient, index)} {
		errs = append(errs, removeIfExists(cp.dir.pki(name+".crt")), removeIfExists(cp.dir.pki(name+".key")))
	}
	return errors.Join(errs...)
}

// nodeRemovalTimeout limits how long a start waits for the API to delete the Node of a real node.
const nodeRemovalTimeout = time.Minute

// dismissNodes deletes the Nodes of earlier real nodes.
func (cp *ControlPlane) dismissNodes(ctx context.Context, client kubernetes.Interface) error {
	cp.mu.Lock()
	highest := cp.state.RealNodes
	cp.mu.Unlock()
	var leftOver []int
	bound := 0
	for index := range highest {
		if cp.hasNode(index) {
			bound = index + 1
		} else {
			leftOver = append(leftOver, index)
		}
	}
	if len(leftOver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nodeRemovalTimeout, fmt.Errorf("waited %s", nodeRemovalTimeout))
	defer cancel()
	for _, i := range leftOver {
		err := client.CoreV1().Nodes().Delete(ctx, node.Name(i), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the former Node %s: %w", node.Name(i), err)
		}
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.state.RealNodes = bound
	return saveState(cp.dir, cp.state)
}
