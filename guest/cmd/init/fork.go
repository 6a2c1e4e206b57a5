package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/keelson-dev/keelson/guest/internal/network"
	"github.com/keelson-dev/keelson/guest/internal/system"
)

// settleTimeout is how long a guest that was copied while it booted may take for the rest of that.
const settleTimeout = 20 * time.Second

// Fork implements agent.Guest. The files and commands of the seed are due at the next boot, as with a new instance.
// Hosts whose machines all have one hardware address tell them apart by the instance.
func (g guest) Fork(entropy []byte, address net.HardwareAddr, instance string) error {
	in := g.initProcess
	if err := system.Reseed(entropy); err != nil {
		return err
	}
	select {
	case <-in.settled:
	case <-time.After(settleTimeout):
		return errors.New("the guest is still booting")
	}
	in.applying.Lock()
	defer in.applying.Unlock()
	if in.forked == address.String() && (instance == "" || in.seed.InstanceID == instance) {
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
	if instance != "" && in.seed.InstanceID != instance {
		return fmt.Errorf("the seed is of the instance %q, want %q", in.seed.InstanceID, instance)
	}
	in.forked = address.String()
	in.console.Printf("The guest goes on as another machine")
	in.startSSH(g.ctx)
	in.interfaces = append(in.interfaces, name)
	in.startInterfaces(g.ctx)
	return nil
}
