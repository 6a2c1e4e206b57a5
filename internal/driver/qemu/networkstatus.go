package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/network"
	"github.com/keelson-dev/keelson/internal/process"
)

// networksDir is the directory of the networks in a state directory.
func networksDir(stateDir string) string { return filepath.Join(stateDir, "networks") }

// Networks implements backend.Networker.
func (d *Driver) Networks(ctx context.Context) ([]backend.Network, error) {
	return Networks(ctx, d.options.StateDir)
}

// Networks returns the networks of the running machines in a state directory, which need not exist. No manager need run.
func Networks(ctx context.Context, stateDir string) ([]backend.Network, error) {
	entries, err := os.ReadDir(networksDir(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	statuses, err := process.Peek(filepath.Join(stateDir, "processes"))
	running := map[string]bool{}
	for _, status := range statuses {
		running[status.ID] = status.State == process.Running
	}
	var all []backend.Network
	for _, entry := range entries {
		if !running[networkProcess+entry.Name()] {
			continue // no machine is on
		}
		found, err := describeNetwork(ctx, filepath.Join(networksDir(stateDir), entry.Name()))
		if err != nil {
			found.Namespace, found.Error = entry.Name(), err.Error()
		}
		all = append(all, found)
	}
	return all, err
}

// describeNetwork queries the process of a network.
func describeNetwork(ctx context.Context, folder string) (backend.Network, error) {
	client, release, err := networkClient(folder)
	if err != nil {
		return backend.Network{}, err
	}
	defer release()
	status, err := client.Status(ctx)
	if err != nil {
		return backend.Network{}, err
	}
	found := backend.Network{Namespace: status.Namespace, Prefix: status.Prefix.String()}
	for i := range status.Machines {
		found.Machines = append(found.Machines, describePort(&status.Machines[i]))
	}
	return found, nil
}

func describePort(status *network.MachineStatus) backend.NetworkMachine {
	machine := backend.NetworkMachine{
		UID: types.UID(status.UID), Name: status.Name, Address: status.Address.String(), Connected: status.Connected, Leased: status.Leased,
		ReceivedBytes: status.BytesIn, TransmittedBytes: status.BytesOut, ReceivedPackets: status.PacketsIn, TransmittedPackets: status.PacketsOut,
		DroppedPackets: status.Drops, Connections: status.Connections, Inbound: status.Inbound, InboundTotal: status.InboundTotal,
	}
	for _, forward := range status.Forwards {
		machine.Forwards = append(machine.Forwards, backend.NetworkForward{
			Name: forward.Name, Protocol: string(forward.Protocol), Host: forward.Host.String(), Port: forward.GuestPort, Error: forward.Error,
		})
	}
	return machine
}

// networkClient returns a client of the process of the network in a folder, which is valid until release is called. The name
// of the folder may be too long for the address of a socket.
func networkClient(folder string) (client *network.Client, release func(), err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, nil, err
	}
	return network.NewClient(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())), func() { dir.Close() }, nil
}
