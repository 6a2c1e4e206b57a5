package fakeqemu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"slices"
)

// agentMark is the byte before an answer to guest-sync-delimited.
const agentMark = 0xff

// agentCommands are those of the agent of the default guest.
var agentCommands = map[string]command{
	"guest-sync-delimited": {"id:integer", func(_ *machine, a map[string]any, _ *passed) (any, error) { return int64(a["id"].(float64)), nil }},
	"guest-ping":           {"", func(*machine, map[string]any, *passed) (any, error) { return nil, nil }},
	"guest-set-time":       {"time?:integer", func(*machine, map[string]any, *passed) (any, error) { return nil, nil }},
	"guest-fsfreeze-freeze": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		m.guest.Frozen = true
		return 1, nil
	}},
	"guest-fsfreeze-thaw": {"", func(m *machine, _ map[string]any, _ *passed) (any, error) {
		if !m.guest.Frozen {
			return 0, nil
		}
		m.guest.Frozen = false
		return 1, nil
	}},
	"guest-network-get-interfaces": {"", func(*machine, map[string]any, *passed) (any, error) {
		return []any{map[string]any{"name": "eth0", "ip-addresses": []any{map[string]any{"ip-address": "10.0.2.15", "ip-address-type": "ipv4", "prefix": 24}}}}, nil
	}},
	"keelson-start": {"entropy:any", func(*machine, map[string]any, *passed) (any, error) { return nil, nil }},
	"keelson-fork": {"entropy:any hardware-address:string instance-id?:string", func(m *machine, a map[string]any, _ *passed) (any, error) {
		instance, given := a["instance-id"].(string)
		if given && !m.isSeedOf(instance) {
			return nil, generic("the seed is not that of %s", instance)
		}
		m.guest.Instance = instance
		return nil, nil
	}},
}

// isSeedOf reports whether the seed of the machine, if it has one, is that of an instance.
func (m *machine) isSeedOf(instance string) bool {
	n := m.node("seed")
	if n == nil {
		return true
	}
	content, err := io.ReadAll(io.NewSectionReader(n.file, 0, n.size))
	return err == nil && bytes.Contains(content, []byte(`"instance-id":"`+instance+`"`))
}

// isAgent reports whether a device is the channel of the agent.
func (m *machine) isAgent(c *chardev) bool {
	return slices.ContainsFunc(m.devices, func(d *device) bool { return d.driver == "virtserialport" && d.options["chardev"] == c.id })
}

// serveAgent serves a connection to the agent. A guest without one reads nothing, and one whose processors do not run answers when they do.
func (m *machine) serveAgent(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line, _, found := cutLine(append(lines.Bytes(), '\n'))
		var r request
		if !found || json.Unmarshal(line, &r) != nil {
			continue
		}
		m.mu.Lock()
		for !m.isRunning() {
			m.resumed.Wait()
		}
		hasAgent := m.guest.Agent
		m.mu.Unlock()
		if !hasAgent {
			continue
		}
		reply := marshal(m.execute(&request{Execute: r.Execute, Arguments: r.Arguments, ID: r.ID}, nil, agentCommands))
		if r.Execute == "guest-sync-delimited" {
			reply = append([]byte{agentMark}, reply...)
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}
