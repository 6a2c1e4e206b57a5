package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

const (
	// JobVariable is the environment variable with the Job of a Pod that works on volumes instead of running a machine, as JSON.
	JobVariable = "KEELSON_JOB"
	// SnapshotDir is the volume of a snapshot in such a Pod.
	SnapshotDir = "/snapshot"
)

// SnapshotFile returns the name of the file of a disk on the volume of a snapshot.
func SnapshotFile(disk string) string {
	if disk == qemu.RootDisk {
		return "root.qcow2"
	}
	return "disk-" + disk + ".qcow2"
}

// Job is work on volumes. One of its fields is set.
type Job struct {
	Take *Take `json:"take,omitempty"`
	Fill *Fill `json:"fill,omitempty"`
}

// Take copies the disks of a machine, as they are at one moment, to the volume of a snapshot.
type Take struct {
	// Disks are the names of the disks, the root disk first.
	Disks []string `json:"disks"`
	// Memory means that the snapshot also has the memory of the machine, which runs, is paused, or is asleep.
	Memory bool `json:"memory,omitempty"`
}

// JobResult is how a job ended.
type JobResult struct {
	// Error is why it has failed; empty if it has not.
	Error string `json:"error,omitempty"`
	// Taken is the result of a Take, and Filled means that a Fill is done.
	Taken  *Taken `json:"taken,omitempty"`
	Filled bool   `json:"filled,omitempty"`
}

// Taken is a snapshot that is complete.
type Taken struct {
	// At is the moment of the snapshot.
	At time.Time `json:"at"`
	// Disks are its disks, the root disk first.
	Disks []Disk `json:"disks"`
	// Quiesced means that the file systems of the guest were frozen at that moment.
	Quiesced bool `json:"quiesced,omitempty"`
	// Memory describes the memory at that moment, whose file is that of a machine that is asleep; nil if there is none.
	Memory *savedmemory.Memory `json:"memory,omitempty"`
	// AllocatedBytes is the space that its files use.
	AllocatedBytes int64 `json:"allocatedBytes"`
}

// RunJob does a job. The end of ctx ends it. Messages for people go to messages.
func RunJob(ctx context.Context, job Job, dirs Dirs, messages io.Writer) JobResult {
	var result JobResult
	err := errors.New("the job has nothing to do")
	switch {
	case job.Take != nil:
		result.Taken, err = job.Take.run(ctx, dirs)
	case job.Fill != nil:
		err = job.Fill.run(ctx, dirs, messages)
		result.Filled = err == nil
	}
	if err != nil {
		_, _ = fmt.Fprintf(messages, "The job has failed: %v\n", err) // a message only
		return JobResult{Error: ending(err.Error())}
	}
	return result
}
