package main

import (
	"context"
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

// awaitSettled waits until the guest has applied its seed.
func (in *initProcess) awaitSettled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		in.applying.Lock()
		settled := in.settled
		in.applying.Unlock()
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the guest is still booting")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Fork implements agent.Guest. The files and commands of the seed are due at the next boot, as with a new instance.
func (g guest) Fork(entropy []byte, address net.HardwareAddr) error {
	in := g.initProcess
	if err := system.Reseed(entropy); err != nil {
		return err
	}
	if err := in.awaitSettled(g.ctx); err != nil {
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
	in.startSSH(g.ctx)
	in.interfaces = append(in.interfaces, name)
	in.startInterfaces(g.ctx)
	return nil
}
