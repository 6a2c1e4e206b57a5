package fakeqemu

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// command is a command: its arguments, and what it does. The mutex of the machine is held.
type command struct {
	arguments string
	run       func(m *machine, a map[string]any, file *passed) (any, error)
}

// version is what the fake says that it is.
var version = map[string]any{"qemu": map[string]any{"major": 7, "minor": 2, "micro": 99}, "package": "fake"}

// balloonPath is the path of the balloon.
const balloonPath = "/machine/peripheral/balloon"

// commands are those of the monitor. See the QEMU QMP Reference Manual.
var commands = map[string]command{
	"query-version": {"", func(*machine, map[string]any, *passed) (any, error) { return version, nil }},
	"query-uuid":    {"", func(m *machine, _ map[string]any, _ *passed) (any, error) { return map[string]any{"UUID": m.uuid}, nil }},
	"query-status": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		return map[string]any{"status": m.status, "running": m.isRunning(), "singlestep": false}, nil
	}},
	"query-chardev":    {"", (*machine).queryChardev},
	"query-blockstats": {"", (*machine).queryBlockStats},
	"query-memory-devices": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		return []any{}, nil
	}},
	"query-balloon": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		return map[string]any{"actual": m.balloon}, nil
	}},
	"balloon": {"value:integer", func(m *machine, a map[string]any, _ *passed) (any, error) {
		if m.guest.Agent && m.isRunning() { // firmware has no driver of it
			m.balloon = min(m.memory, int64(a["value"].(float64)))
		}
		return nil, nil
	}},
	"stop": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		if m.isRunning() || m.status == "prelaunch" || m.status == "postmigrate" {
			m.halt("paused")
		}
		return nil, nil
	}},
	"cont": {"", (*machine).cont},
	"quit": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		m.emit("SHUTDOWN", map[string]any{"guest": false, "reason": "host-qmp-quit"})
		time.AfterFunc(time.Millisecond, func() { m.quit() }) // when it is answered
		return nil, nil
	}},
	"system_powerdown": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		m.powerDown()
		return nil, nil
	}},
	"set_link": {"name:string up:boolean", func(m *machine, a map[string]any, _ *passed) (any, error) {
		name := a["name"].(string)
		if _, found := m.links[name]; !found {
			return nil, notFound(name)
		}
		m.links[name] = a["up"].(bool)
		return nil, nil
	}},
	"human-monitor-command": {"command-line:string cpu-index?:integer", func(m *machine, a map[string]any, _ *passed) (any, error) {
		return m.human(a["command-line"].(string)), nil
	}},
	"qom-list": {"path:string", (*machine).qomList},
	"qom-get":  {"path:string property:string", (*machine).qomGet},
	"qom-set":  {"path:string property:string value:any", (*machine).qomSet},
	"device_add": {"driver:string bus?:string id?:string drive?:string serial?:string addr?:string write-cache?:any memdev?:string", func(m *machine, a map[string]any, _ *passed) (any, error) {
		return nil, m.addDevice(texts(a))
	}},
	"device_del": {"id:string", (*machine).deviceDel},
	"object-del": {"id:string", func(m *machine, a map[string]any, _ *passed) (any, error) {
		i := slices.Index(m.objects, a["id"].(string))
		if i < 0 {
			return nil, generic("object '%s' not found", a["id"])
		}
		m.objects = slices.Delete(m.objects, i, i+1)
		return nil, nil
	}},

	"add-fd":                  {"fdset-id?:integer opaque?:string", (*machine).addFD},
	"remove-fd":               {"fdset-id:integer fd?:integer", (*machine).removeFD},
	"query-fdsets":            {"", (*machine).queryFDSets},
	"query-named-block-nodes": {"flat?:boolean", (*machine).queryNodes},
	"blockdev-add": {"driver:string node-name?:string read-only?:boolean discard?:string file?:any filename?:string backing?:any", func(m *machine, a map[string]any, _ *passed) (any, error) {
		_, err := m.addNode(a)
		return nil, err
	}},
	"blockdev-del":              {"node-name:string", (*machine).delNode},
	"block_resize":              {"device?:string node-name?:string size:integer", (*machine).resize},
	"block-dirty-bitmap-remove": {"node:string name:string", (*machine).removeBitmap},
	"transaction":               {"actions:array properties?:object", (*machine).transaction},
	"query-jobs":                {"", (*machine).queryJobs},
	"job-cancel":                {"id:string", (*machine).cancelJob},
	"job-dismiss":               {"id:string", (*machine).dismissJob},

	"getfd":                    {"fdname:string", (*machine).getFD},
	"closefd":                  {"fdname:string", (*machine).closeFD},
	"migrate-set-parameters":   {"max-bandwidth?:integer", func(*machine, map[string]any, *passed) (any, error) { return nil, nil }},
	"migrate-set-capabilities": {"capabilities:array", (*machine).setCapabilities},
	"migrate":                  {"uri:string", (*machine).migrate},
	"migrate-incoming":         {"uri:string", (*machine).migrateIncoming},
	"migrate_cancel": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		m.migration.cancel()
		return nil, nil
	}},
	"query-migrate": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) { return m.migration.query(), nil }},
}

func (m *machine) queryChardev(map[string]any, *passed) (any, error) {
	all := []any{}
	for _, c := range m.chardevs {
		all = append(all, map[string]any{"label": c.id, "filename": "unix:" + c.path + ",server=on", "frontend-open": c.open})
	}
	return all, nil
}

func (m *machine) queryBlockStats(map[string]any, *passed) (any, error) {
	all := []any{}
	for _, d := range m.devices {
		if drive := d.options["drive"]; drive != "" {
			all = append(all, map[string]any{"device": "", "node-name": drive, "stats": map[string]any{"rd_bytes": 0, "wr_bytes": 0, "rd_operations": 0, "wr_operations": 0}})
		}
	}
	return all, nil
}

func (m *machine) cont(map[string]any, *passed) (any, error) {
	switch m.status {
	case "shutdown", "internal-error", "guest-panicked":
		return nil, generic("Resetting the Virtual Machine is required")
	case "inmigrate":
		m.halts = false
	default:
		m.resume()
	}
	return nil, nil
}

// The folders of devices with and without a name.
const named, unnamed = "/machine/peripheral", "/machine/peripheral-anon"

func (m *machine) qomList(a map[string]any, _ *passed) (any, error) {
	path := a["path"].(string)
	if path != named && path != unnamed {
		return nil, notFound(path)
	}
	all := []any{map[string]any{"name": "type", "type": "string"}}
	for name, d := range m.folder(path) {
		all = append(all, map[string]any{"name": name, "type": "child<" + d.driver + ">"})
	}
	return all, nil
}

// folder returns the devices in a folder, by name.
func (m *machine) folder(path string) map[string]*device {
	all := map[string]*device{}
	anonymous := 0
	for _, d := range m.devices {
		switch {
		case path == named && d.id != "":
			all[d.id] = d
		case path == unnamed && d.id == "":
			all[fmt.Sprintf("device[%d]", anonymous)] = d
			anonymous++
		}
	}
	return all
}

// find returns the device at a path; nil if there is none.
func (m *machine) find(path string) *device {
	for _, folder := range []string{named, unnamed} {
		if name, found := strings.CutPrefix(path, folder+"/"); found {
			return m.folder(folder)[name]
		}
	}
	return nil
}

const (
	statsProperty    = "guest-stats"
	intervalProperty = "guest-stats-polling-interval"
)

func (m *machine) qomGet(a map[string]any, _ *passed) (any, error) {
	path, property := a["path"].(string), a["property"].(string)
	d := m.find(path)
	if d == nil {
		return nil, notFound(path)
	}
	switch {
	case property == "addr" && d.slot > 0:
		return d.slot << 3, nil
	case property == "serial" && d.driver == "virtio-blk-pci":
		return d.options["serial"], nil
	case property == statsProperty && path == balloonPath:
		updated := int64(0)
		if m.polls && m.guest.Agent {
			updated = time.Now().Unix()
		}
		return map[string]any{"last-update": updated, "stats": map[string]any{"stat-free-memory": m.memory / 2, "stat-total-memory": m.memory, "stat-available-memory": m.memory / 2}}, nil
	}
	return nil, generic("Property '%s.%s' not found", d.driver, property)
}

func (m *machine) qomSet(a map[string]any, _ *passed) (any, error) {
	path, property := a["path"].(string), a["property"].(string)
	d := m.find(path)
	switch {
	case d == nil:
		return nil, notFound(path)
	case path != balloonPath || property != intervalProperty:
		return nil, generic("Property '%s.%s' not found", d.driver, property)
	case !isA(a["value"], "integer"):
		return nil, generic("Invalid parameter type for '%s', expected: integer", property)
	}
	m.polls = a["value"].(float64) > 0
	return nil, nil
}

func (m *machine) deviceDel(a map[string]any, _ *passed) (any, error) {
	id := a["id"].(string)
	i := slices.IndexFunc(m.devices, func(d *device) bool { return d.id == id })
	if id == "" || i < 0 {
		return nil, notFound(id)
	}
	if m.guest.Agent && m.isRunning() { // firmware does not let it go
		m.devices = slices.Delete(m.devices, i, i+1)
		m.emit("DEVICE_DELETED", map[string]any{"device": id, "path": named + "/" + id})
	}
	return nil, nil
}
