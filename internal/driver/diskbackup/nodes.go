// Package diskbackup copies the disks of a running QEMU to files, as they are at one moment. The drivers qemu and pod take snapshots with
// it. It knows nothing of either: they make the files, and record that a snapshot is complete.
package diskbackup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// commandTimeout is the response timeout of QEMU.
const commandTimeout = 10 * time.Second

// Step is called at each point where a crash makes a difference. Crash tests replace it.
var Step = func(string) {}

// Nodes are the block nodes of a QEMU.
type Nodes struct {
	// Sizes are their virtual sizes, by name.
	Sizes map[string]int64
	// Sets are the sets of descriptors, by the name of the node that they are for.
	Sets map[string][]int64

	// tracked are those whose changes are recorded, and changed is the number of bytes that have changed since their copy began.
	tracked []string
	changed int64
}

// Query returns the block nodes that QEMU has.
func Query(ctx context.Context, conn *qmp.Client) (*Nodes, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	n := &Nodes{Sizes: map[string]int64{}, Sets: map[string][]int64{}}
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		}
		Bitmaps []struct {
			Name  string
			Count int64
		} `json:"dirty-bitmaps"`
	}
	if err := conn.Run(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	for _, node := range nodes {
		n.Sizes[node.Name] = node.Image.Size
		for _, bitmap := range node.Bitmaps {
			if bitmap.Name == bitmapName {
				n.tracked, n.changed = append(n.tracked, node.Name), n.changed+bitmap.Count
			}
		}
	}
	var sets []struct {
		ID  int64 `json:"fdset-id"`
		FDs []struct{ Opaque string }
	}
	if err := conn.Run(ctx, "query-fdsets", nil, &sets); err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, fd := range set.FDs {
			n.Sets[fd.Opaque] = append(n.Sets[fd.Opaque], set.ID)
		}
	}
	return n, nil
}

// HandOver gives QEMU, which opens no file by name, a descriptor of a file as a block node, unless it has the node.
func (n *Nodes) HandOver(ctx context.Context, conn *qmp.Client, file *os.File, node string, readOnly bool) error {
	if _, found := n.Sizes[node]; found {
		return nil
	}
	if err := n.RemoveSets(ctx, conn, node); err != nil { // left behind by a manager that was killed here
		return err
	}
	var set struct {
		ID int64 `json:"fdset-id"`
	}
	if err := conn.RunWithFile(ctx, "add-fd", map[string]any{"opaque": node}, file, &set); err != nil {
		return err
	}
	Step("disk handed over")
	if err := n.Add(ctx, conn, FileNode(fmt.Sprintf("/dev/fdset/%d", set.ID), node, readOnly)); err != nil {
		return errors.Join(err, conn.Run(ctx, "remove-fd", map[string]any{"fdset-id": set.ID}, nil))
	}
	return nil
}

// FileNode returns the block node of a file.
func FileNode(path, name string, readOnly bool) map[string]any {
	node := map[string]any{"driver": "file", "node-name": name, "filename": path, "read-only": readOnly}
	if !readOnly {
		node["discard"] = "unmap"
	}
	return node
}

// Add adds a block node, unless QEMU has it.
func (n *Nodes) Add(ctx context.Context, conn *qmp.Client, node map[string]any) error {
	if _, found := n.Sizes[node["node-name"].(string)]; found {
		return nil
	}
	return conn.Run(ctx, "blockdev-add", node, nil)
}

// RemoveSets removes the descriptors for a node.
func (n *Nodes) RemoveSets(ctx context.Context, conn *qmp.Client, node string) error {
	for _, set := range n.Sets[node] {
		if err := conn.Run(ctx, "remove-fd", map[string]any{"fdset-id": set}, nil); err != nil {
			return err
		}
	}
	return nil
}
