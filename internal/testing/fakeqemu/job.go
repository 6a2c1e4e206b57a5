package fakeqemu

import (
	"io"
	"os"
	"slices"
)

// bitmap is the only bitmap that a node may have.
const bitmap = "snapshot"

// job is a copy of a disk.
type job struct {
	id, device, target, status string
	total                      int64
}

// actions are those of transactions.
var actions = map[string]string{
	"block-dirty-bitmap-add": "node:string name:string granularity?:integer persistent?:boolean disabled?:boolean",
	"blockdev-backup":        "job-id?:string device:string target:string sync:string bitmap?:string auto-dismiss?:boolean auto-finalize?:boolean",
}

// transaction runs actions, all or none.
func (m *machine) transaction(a map[string]any, _ *passed) (any, error) {
	var undo []func()
	for _, each := range a["actions"].([]any) {
		action, _ := each.(map[string]any)
		if err := check("type:string data:object", action); err != nil {
			return nil, err
		}
		kind, data := action["type"].(string), action["data"].(map[string]any)
		known, found := actions[kind]
		if !found {
			return nil, generic("Parameter 'type' does not accept value '%s'", kind)
		}
		err := check(known, data)
		if err == nil && kind == "blockdev-backup" {
			err = m.checkBackup(data)
		} else if err == nil {
			n := m.node(data["node"].(string))
			switch {
			case n == nil:
				err = generic("Cannot find device='%[1]s' nor node-name='%[1]s'", data["node"])
			case n.tracked:
				err = generic("Bitmap already exists: %s", data["name"])
			default:
				n.tracked, n.changed = true, 0
				undo = append(undo, func() { n.tracked = false })
			}
		}
		if err != nil {
			for _, do := range undo {
				do()
			}
			return nil, err
		}
	}
	for _, each := range a["actions"].([]any) {
		if action := each.(map[string]any); action["type"] == "blockdev-backup" {
			m.backUp(action["data"].(map[string]any))
		}
	}
	return nil, nil
}

// checkBackup returns why a copy cannot begin.
func (m *machine) checkBackup(a map[string]any) error {
	for _, name := range []any{a["device"], a["target"]} {
		if m.node(name.(string)) == nil {
			return generic("Cannot find device='%[1]s' nor node-name='%[1]s'", name)
		}
	}
	if id, _ := a["job-id"].(string); m.job(id) != nil {
		return generic("Job ID '%s' already in use", id)
	}
	from, to := m.node(a["device"].(string)), m.node(a["target"].(string))
	sync, _ := a["sync"].(string)
	_, hasBitmap := a["bitmap"]
	switch {
	case sync != "top" && sync != "full" && sync != "incremental":
		return generic("Parameter 'sync' does not accept value '%s'", sync)
	case sync == "incremental" && !hasBitmap:
		return generic("must provide a valid bitmap name for 'incremental' sync mode")
	case hasBitmap && !from.tracked:
		return generic("Bitmap '%s' could not be found", a["bitmap"])
	case from.size != to.size:
		return generic("Source and target image have different sizes")
	}
	return nil
}

// backUp copies a disk, and reports it as QEMU does. It keeps the job until it is dismissed.
func (m *machine) backUp(a map[string]any) {
	from, to := m.node(a["device"].(string)), m.node(a["target"].(string))
	j := &job{device: from.name, target: to.name, total: from.size}
	j.id, _ = a["job-id"].(string)
	m.jobs = append(m.jobs, j)
	for _, status := range []string{"created", "running", "paused", "running"} {
		m.setJob(j, status)
	}
	err := copyImage(from.file, to.file)
	if _, hasBitmap := a["bitmap"]; hasBitmap {
		from.changed = 0
	}
	if err != nil {
		panic(err) // the volume of a test is full
	}
	m.setJob(j, "waiting")
	m.setJob(j, "pending")
	m.emit("BLOCK_JOB_COMPLETED", map[string]any{"device": j.id, "len": j.total, "offset": j.total, "speed": 0, "type": "backup"})
	m.setJob(j, "concluded")
}

// copyImage copies the file of a disk, without the name of an image below it.
func copyImage(from, to *os.File) error {
	if err := to.Truncate(0); err != nil {
		return err
	}
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, 0, size)); err != nil {
		return err
	}
	_, err = to.WriteAt(make([]byte, 12), 8) // the offset and the size of that name
	return err
}

func (m *machine) setJob(j *job, status string) {
	j.status = status
	m.emit("JOB_STATUS_CHANGE", map[string]any{"id": j.id, "status": status})
}

func (m *machine) job(id string) *job {
	for _, j := range m.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

func (m *machine) queryJobs(map[string]any, *passed) (any, error) {
	all := []any{}
	for _, j := range m.jobs {
		all = append(all, map[string]any{"id": j.id, "type": "backup", "status": j.status, "current-progress": j.total, "total-progress": j.total})
	}
	return all, nil
}

func (m *machine) cancelJob(a map[string]any, _ *passed) (any, error) {
	j := m.job(a["id"].(string))
	if j == nil {
		return nil, generic("Job not found")
	}
	return nil, generic("Job '%s' in state '%s' cannot accept command verb 'cancel'", j.id, j.status)
}

func (m *machine) dismissJob(a map[string]any, _ *passed) (any, error) {
	j := m.job(a["id"].(string))
	if j == nil {
		return nil, generic("Job not found")
	}
	m.setJob(j, "null")
	m.jobs = slices.DeleteFunc(m.jobs, func(other *job) bool { return other == j })
	return nil, nil
}

func (m *machine) removeBitmap(a map[string]any, _ *passed) (any, error) {
	n := m.node(a["node"].(string))
	switch {
	case n == nil:
		return nil, generic("Cannot find device='%[1]s' nor node-name='%[1]s'", a["node"])
	case !n.tracked || a["name"] != bitmap:
		return nil, generic("Dirty bitmap '%s' not found", a["name"])
	}
	n.tracked = false
	return nil, nil
}
