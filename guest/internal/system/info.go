package system

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/guest/internal/agent"
)

// OSInfo says which system this is, after /etc/os-release and uname(2).
func OSInfo() (agent.OSInfo, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return agent.OSInfo{}, err
	}
	content, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return agent.OSInfo{}, err
	}
	info := parseOSRelease(content)
	info.KernelRelease = unix.ByteSliceToString(name.Release[:])
	info.KernelVersion = unix.ByteSliceToString(name.Version[:])
	info.Machine = unix.ByteSliceToString(name.Machine[:])
	return info, nil
}

// parseOSRelease reads KEY=value lines, see os-release(5); the value may be in
// double quotes, as Go has them.
func parseOSRelease(content []byte) agent.OSInfo {
	var info agent.OSInfo
	fields := map[string]*string{
		"ID": &info.ID, "NAME": &info.Name, "PRETTY_NAME": &info.PrettyName,
		"VERSION": &info.Version, "VERSION_ID": &info.VersionID,
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if field, known := fields[key]; known {
			if plain, err := strconv.Unquote(value); err == nil {
				value = plain
			}
			*field = value
		}
	}
	return info
}
