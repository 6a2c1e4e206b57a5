package docker

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// signalStatus is added to the signal number in the exit status of a program that was killed by a
// signal.
const signalStatus = 128

// describe returns the server in a container, given its record.
func describe(ctr *container.InspectResponse, rec *record) backend.Server {
	s := backend.Server{
		Identity: identityOf(ctr.Config.Labels), ID: strings.TrimPrefix(ctr.Name, "/"), Run: runOf(ctr.State), Hash: rec.Machine.Hash,
	}
	if describeState(&s, ctr.State.Status); s.State == backend.StateUnknown {
		return s
	}
	if !s.IsOn() {
		s.Ended = endOf(ctr.State, rec)
		return s
	}
	s.StartedAt = timeOf(ctr.State.StartedAt)
	s.Addresses = addresses(ctr.NetworkSettings)
	s.Endpoints = endpoints(s.Addresses, rec.Machine.Ports)
	s.Pending = pending(ctr.HostConfig, rec)
	return s
}

// describeState sets the state of a server from that of its container.
func describeState(s *backend.Server, state container.ContainerState) {
	s.State = backend.StateStopped
	switch state {
	case container.StateRunning:
		s.State = backend.StateRunning
	case container.StatePaused:
		s.State = backend.StatePaused
	case container.StateRemoving:
		s.Task = backend.TaskDelete
	case container.StateDead, container.StateRestarting:
		s.State = backend.StateUnknown
		s.Message = fmt.Sprintf("the container %s is %s; try docker rm --force %s", s.ID, state, s.ID)
	}
}

// timeOf parses a timestamp of the engine; the zero time if the event has not happened.
func timeOf(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() <= 1 {
		return time.Time{}
	}
	return at
}

// runOf identifies the current or last run of a container by its start time. It is empty if the
// container never ran.
func runOf(state *container.State) string {
	at := timeOf(state.StartedAt)
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixNano(), 36)
}

// endOf returns the end of the last run of a container that is off, or of the last failed start;
// nil if there was none.
func endOf(state *container.State, rec *record) *backend.Ended {
	run := runOf(state)
	if rec.Failed != nil && rec.AfterRun == run {
		failed := *rec.Failed
		return &failed
	}
	stopped := rec.Stop != nil && rec.Stop.Run == run
	if run == "" && !stopped {
		return nil
	}
	ended := &backend.Ended{Run: run, StartedAt: timeOf(state.StartedAt), At: timeOf(state.FinishedAt)}
	if stopped {
		ended.Cause = backend.CauseRequested
		return ended
	}
	ended.Cause, ended.Message = causeOf(state)
	return ended
}

// causeOf returns why a container ended without a request to stop.
func causeOf(state *container.State) (backend.Cause, string) {
	switch {
	case state.OOMKilled:
		return backend.CauseError, "it exceeded the memory limit in spec.resource.memory"
	case state.Error != "":
		return backend.CauseError, state.Error
	case state.ExitCode == 0:
		return backend.CauseGuestShutdown, ""
	case state.ExitCode > signalStatus && unix.SignalName(unix.Signal(state.ExitCode-signalStatus)) != "":
		return backend.CauseHost, "its main process was killed by " + unix.SignalName(unix.Signal(state.ExitCode-signalStatus))
	}
	return backend.CauseError, fmt.Sprintf("its main process exited with status %d", state.ExitCode)
}

// addresses returns the sorted addresses of a container.
func addresses(settings *container.NetworkSettings) []string {
	if settings == nil {
		return nil
	}
	var found []netip.Addr
	for _, network := range settings.Networks {
		for _, address := range []netip.Addr{network.IPAddress, network.GlobalIPv6Address} {
			if address.IsValid() && !address.IsUnspecified() {
				found = append(found, address)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	var all []string
	for _, address := range slices.Compact(found) {
		all = append(all, address.String())
	}
	return all
}

// endpoints returns where ports can be reached. A container has its own address on the engine's
// host, so nothing needs to be forwarded.
func endpoints(addresses []string, ports []v1alpha1.Port) []v1alpha1.Endpoint {
	if len(addresses) == 0 {
		return nil
	}
	var all []v1alpha1.Endpoint
	for _, port := range ports {
		all = append(all, v1alpha1.Endpoint{
			Name: port.Name, Protocol: port.Protocol, Address: net.JoinHostPort(addresses[0], strconv.Itoa(int(port.Port))),
		})
	}
	return all
}

// pending returns the fields of the spec that wait for a restart of a running container.
func pending(host *container.HostConfig, rec *record) []string {
	if rec.Machine.Hash == "" || host == nil {
		return nil // the record is lost
	}
	var fields []string
	wanted := newResources(&rec.Machine)
	if host.NanoCPUs != wanted.NanoCPUs {
		fields = append(fields, "resource.cpu")
	}
	if host.Memory != wanted.Memory {
		fields = append(fields, "resource.memory")
	}
	if rec.SeedSum != rec.StartedSeedSum {
		fields = append(fields, "cloudInit")
	}
	return fields
}
