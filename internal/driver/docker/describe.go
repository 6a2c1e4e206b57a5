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

// signalStatus is what the exit status of a shell, and of a container, is above for a
// program that a signal has ended.
const signalStatus = 128

// describe returns the machine that a container is, given what is remembered of it.
func describe(box *container.InspectResponse, of *memo) backend.Server {
	s := backend.Server{
		Identity: identityOf(box.Config.Labels), ID: strings.TrimPrefix(box.Name, "/"), Run: runOf(box.State), Hash: of.Machine.Hash,
	}
	if describeState(&s, box.State.Status); s.State == backend.StateUnknown {
		return s
	}
	if !s.IsOn() {
		s.Ended = endOf(box.State, of)
		return s
	}
	s.StartedAt = timeOf(box.State.StartedAt)
	s.Addresses = addresses(box.NetworkSettings)
	s.Endpoints = endpoints(s.Addresses, of.Machine.Ports)
	s.Pending = pending(box.HostConfig, of)
	return s
}

// describeState fills in what the state of a container says about a server.
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
		s.Message = fmt.Sprintf("the engine says that the container %s is %s; try docker rm --force %s", s.ID, state, s.ID)
	}
}

// timeOf parses a time of the engine; zero if it never came.
func timeOf(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() <= 1 {
		return time.Time{}
	}
	return at
}

// runOf names the present run of a container, or else the last one, by its start. It is
// empty if the container never ran.
func runOf(state *container.State) string {
	at := timeOf(state.StartedAt)
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixNano(), 36)
}

// endOf returns how the last run of a container that is off ended, or the last attempt to
// start it; nil if there was none.
func endOf(state *container.State, of *memo) *backend.Ended {
	run := runOf(state)
	if of.Failed != nil && of.AfterRun == run {
		failed := *of.Failed
		return &failed
	}
	stopped := of.Stop != nil && of.Stop.Run == run
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

// causeOf returns why a container ended by itself.
func causeOf(state *container.State) (backend.Cause, string) {
	switch {
	case state.OOMKilled:
		return backend.CauseError, "it needed more memory than spec.resource.memory"
	case state.Error != "":
		return backend.CauseError, state.Error
	case state.ExitCode == 0:
		return backend.CauseGuestShutdown, ""
	case state.ExitCode > signalStatus && unix.SignalName(unix.Signal(state.ExitCode-signalStatus)) != "":
		return backend.CauseHost, "its first process was ended by " + unix.SignalName(unix.Signal(state.ExitCode-signalStatus))
	}
	return backend.CauseError, fmt.Sprintf("its first process ended with status %d", state.ExitCode)
}

// addresses returns the addresses of a container, sorted.
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

// endpoints returns where ports can be reached: a container has an address of its own on
// the host of its engine, so that nothing needs to be forwarded.
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

// pending returns the fields of the spec that a container that is on does not have yet.
func pending(host *container.HostConfig, of *memo) []string {
	if of.Machine.Hash == "" || host == nil {
		return nil // it is not known what was told
	}
	var fields []string
	wanted := newResources(&of.Machine)
	if host.NanoCPUs != wanted.NanoCPUs {
		fields = append(fields, "resource.cpu")
	}
	if host.Memory != wanted.Memory {
		fields = append(fields, "resource.memory")
	}
	if of.SeedSum != of.StartedSeedSum {
		fields = append(fields, "cloudInit")
	}
	return fields
}
