package local

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// socket is a TCP socket of this host, as proc_net_tcp(5) describes it.
type socket struct {
	local, remote netip.AddrPort
	state         byte
	inode         uint64 // 0 if no process has it any more
}

// The states of a socket that matter here; see include/net/tcp_states.h of Linux.
const (
	stateTimeWait = 0x06
	stateListen   = 0x0A
)

// readSockets returns all TCP sockets of the network namespace of this process. The functions of procfs for that are deprecated.
func readSockets() ([]socket, error) {
	var all []socket
	for _, path := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read the connections of this host: %w", err)
		}
		all = append(all, parseSockets(string(data))...)
	}
	return all, nil
}

// parseSockets parses a file of the form of /proc/net/tcp, and leaves out what it does not understand.
func parseSockets(table string) []socket {
	var all []socket
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		local, okLocal := parseAddress(fields[1])
		remote, okRemote := parseAddress(fields[2])
		state, err := strconv.ParseUint(fields[3], 16, 8)
		inode, wrong := strconv.ParseUint(fields[9], 10, 64)
		if okLocal && okRemote && err == nil && wrong == nil {
			all = append(all, socket{local: local, remote: remote, state: byte(state), inode: inode})
		}
	}
	return all
}

// parseAddress parses an address such as 0100007F:1F90: words of the host's byte order, and a port.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	words, err := hex.DecodeString(host)
	number, wrong := strconv.ParseUint(port, 16, 16)
	if err != nil || wrong != nil || len(words)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	address, ok := netip.AddrFromSlice(words)
	return netip.AddrPortFrom(address.Unmap(), uint16(number)), ok
}

// listeners returns the number of sockets that listen at an address.
func listeners(all []socket, address netip.AddrPort) (n int) {
	for _, s := range all {
		if s.state == stateListen && s.local == address {
			n++
		}
	}
	return n
}

// socketsOf returns the inodes of the sockets of processes. One that has ended has none.
func socketsOf(pids []int) map[uint64]bool {
	inodes := map[uint64]bool{}
	for _, pid := range pids {
		proc, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		targets, _ := proc.FileDescriptorTargets() // it may have ended by now
		for _, target := range targets {
			number, isSocket := strings.CutPrefix(target, "socket:[")
			if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); isSocket && err == nil {
				inodes[inode] = true
			}
		}
	}
	return inodes
}
