package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/keelson-dev/keelson/guest/internal/network"
	"github.com/keelson-dev/keelson/guest/internal/system"
)

// Fork implements agent.Guest. The files and commands of the seed are due at the next boot, as with a new instance.
func (g guest) Fork(entropy []byte, address net.HardwareAddr) error {
	in := g.initProcess
	if err := system.Reseed(entropy); err != nil {
		return err
	}
	in.applying.Lock()
	defer in.applying.Unlock()
	if in.forked == address.String() {
		return nil // the host did not get the answer
	}
	in.endSSH()
	if err := os.Remove(hostKeyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the SSH host key of the other machine: %w", err)
	}
	name, err := network.First()
	if err != nil {
		return err
	}
	if leave := in.leave[name]; leave != nil {
		leave()
		delete(in.leave, name)
	}
	if err := network.Readdress(name, address); err != nil {
		return err
	}
	in.applySeed()
	in.forked = address.String()
	in.console.Printf("The guest goes on as another machine")
	if !in.settled {
		return nil // it still boots, and does the rest then
	}
	in.startSSH(g.ctx)
	in.interfaces = append(in.interfaces, name)
	in.startInterfaces(g.ctx)
	return nil
}
