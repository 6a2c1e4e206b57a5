package diskbackup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// pollInterval is the interval of looks at QEMU while it copies disks.
	pollInterval = 20 * time.Millisecond
	// jobPrefix begins the names of the jobs that copy disks.
	jobPrefix = "snapshot-"
	// bitmapName is the name of the bitmap in which QEMU records what the guest changes on a disk while it is copied.
	bitmapName = "snapshot"
	// copyRounds is how often more than few bytes are copied while the guest runs. One that writes all the time is halted then, too.
	copyRounds = 4
	// nodePrefix and filePrefix begin the names of the nodes of copies, and of those of their files.
	nodePrefix, filePrefix = "s-", "sf-"
)

// Disk is a disk of the guest.
type Disk struct {
	// Name is its name, Node that of its block node.
	Name, Node string
}

// Prepare gives QEMU the file of the copy of a disk, which has the format qcow2 and the size of the disk.
func (n *Nodes) Prepare(ctx context.Context, conn *qmp.Client, disk Disk, file *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := n.HandOver(ctx, conn, file, filePrefix+disk.Name, false); err != nil {
		return err
	}
	return n.Add(ctx, conn, map[string]any{"driver": "qcow2", "node-name": nodePrefix + disk.Name, "file": filePrefix + disk.Name, "backing": nil})
}

// Begin begins to copy disks at the same moment, to what was prepared: before the guest changes a part of a disk that is not copied yet,
// QEMU copies that part. An image below a disk is not copied. With track, QEMU records what the guest changes from then on.
func Begin(ctx context.Context, conn *qmp.Client, disks []Disk, track bool) error {
	var actions []map[string]any
	for _, disk := range disks {
		if track {
			actions = append(actions, map[string]any{"type": "block-dirty-bitmap-add", "data": bitmapOf(disk.Node)})
		}
		actions = append(actions, action(disk, map[string]any{"sync": "top"}))
	}
	return begin(ctx, conn, actions)
}

// CopyChanged copies what has changed since the last copy began.
func CopyChanged(ctx context.Context, conn *qmp.Client, disks []Disk, progress func(percent int64)) error {
	var actions []map[string]any
	for _, disk := range disks {
		actions = append(actions, action(disk, map[string]any{"sync": "incremental", "bitmap": bitmapName}))
	}
	if err := begin(ctx, conn, actions); err != nil {
		return err
	}
	return Await(ctx, conn, progress)
}

// CopyUntilFew copies what has changed while the guest runs, until that is at most few bytes, or four times.
func CopyUntilFew(ctx context.Context, conn *qmp.Client, disks []Disk, few int64, progress func(percent int64)) error {
	for range copyRounds {
		n, err := Query(ctx, conn)
		if err != nil || n.changed <= few {
			return err
		}
		if err := CopyChanged(ctx, conn, disks, progress); err != nil {
			return err
		}
	}
	return nil
}

func begin(ctx context.Context, conn *qmp.Client, actions []map[string]any) error {
	if len(actions) == 0 {
		return nil // a machine without disks
	}
	if err := run(ctx, conn, "transaction", map[string]any{"actions": actions}, nil); err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	return nil
}

// action returns the action that begins to copy what sync says of a disk.
func action(disk Disk, sync map[string]any) map[string]any {
	data := map[string]any{"job-id": jobPrefix + disk.Name, "device": disk.Node, "target": nodePrefix + disk.Name, "auto-dismiss": false}
	maps.Copy(data, sync)
	return map[string]any{"type": "blockdev-backup", "data": data}
}

// bitmapOf identifies the bitmap of changes of a node.
func bitmapOf(node string) map[string]any {
	return map[string]any{"node": node, "name": bitmapName}
}

// job is a job of QEMU.
type job struct {
	ID, Status, Error string
	Done              int64 `json:"current-progress"`
	Total             int64 `json:"total-progress"`
}

// queryJobs returns the jobs that copy disks.
func queryJobs(ctx context.Context, conn *qmp.Client) ([]job, error) {
	var all []job
	err := run(ctx, conn, "query-jobs", nil, &all)
	return slices.DeleteFunc(all, func(j job) bool { return !strings.HasPrefix(j.ID, jobPrefix) }), err
}

// Await waits until all copies that were begun are complete, and ends their jobs. It calls progress with the percentage, in steps of 25.
func Await(ctx context.Context, conn *qmp.Client, progress func(percent int64)) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		jobs, err := queryJobs(ctx, conn)
		if err != nil {
			return false, err
		}
		var done, total int64
		running := false
		for _, j := range jobs {
			if j.Status == "concluded" && j.Error != "" {
				return false, fmt.Errorf("copy the disk %s: %s", strings.TrimPrefix(j.ID, jobPrefix), j.Error)
			}
			running = running || j.Status != "concluded"
			done, total = done+j.Done, total+j.Total
		}
		if running && total > 0 {
			progress(done * 100 / total / 25 * 25)
		}
		return !running, nil
	})
	if err != nil {
		return err
	}
	return endJobs(ctx, conn)
}

// endJobs ends all copies of disks, complete or not.
func endJobs(ctx context.Context, conn *qmp.Client) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		jobs, err := queryJobs(ctx, conn)
		if err != nil {
			return false, err
		}
		hasEnded := true
		for _, j := range jobs {
			command := "job-dismiss"
			if j.Status != "concluded" {
				command, hasEnded = "job-cancel", false
			}
			// A job may have ended since, or is ending already.
			if err := run(ctx, conn, command, map[string]any{"id": j.ID}, nil); !isRefusal(err) {
				return false, err
			}
		}
		return hasEnded, nil
	})
}

// End removes all copies of disks from QEMU, complete or not, and its descriptors of their files. QEMU has written what it has cached then.
func End(ctx context.Context, conn *qmp.Client) error {
	if err := endJobs(ctx, conn); err != nil {
		return err
	}
	n, err := Query(ctx, conn)
	if err != nil {
		return err
	}
	for _, node := range n.tracked {
		if err := run(ctx, conn, "block-dirty-bitmap-remove", bitmapOf(node), nil); err != nil {
			return err
		}
	}
	// A node ends before that of its file.
	for _, prefix := range []string{nodePrefix, filePrefix} {
		for node := range n.Sizes {
			if !strings.HasPrefix(node, prefix) {
				continue
			}
			if err := run(ctx, conn, "blockdev-del", map[string]any{"node-name": node}, nil); err != nil {
				return err
			}
		}
	}
	for node := range n.Sets {
		if strings.HasPrefix(node, filePrefix) {
			if err := n.RemoveSets(ctx, conn, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// Left returns what QEMU has of copies: the names of jobs, of nodes, and of nodes with descriptors. It is empty after End.
func Left(ctx context.Context, conn *qmp.Client) (left []string, err error) {
	jobs, err := queryJobs(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		left = append(left, j.ID)
	}
	n, err := Query(ctx, conn)
	if err != nil {
		return nil, err
	}
	left = append(left, n.tracked...)
	for _, names := range [][]string{slices.Collect(maps.Keys(n.Sizes)), slices.Collect(maps.Keys(n.Sets))} {
		for _, name := range names {
			if strings.HasPrefix(name, nodePrefix) || strings.HasPrefix(name, filePrefix) {
				left = append(left, name)
			}
		}
	}
	return left, nil
}

// run runs a command of the monitor with its timeout.
func run(ctx context.Context, conn *qmp.Client, command string, arguments, result any) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return conn.Run(ctx, command, arguments, result)
}

// isRefusal reports whether an error, or none, leaves the connection usable.
func isRefusal(err error) bool {
	var refused *qmp.Error
	return err == nil || errors.As(err, &refused)
}
