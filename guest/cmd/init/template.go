package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/guest/internal/system"
)

// templateWord on the kernel's command line says that the host saves the state of this guest, and starts machines from it.
const templateWord = "keelson.template"

// templateDrivers are those of the devices that a machine has and its template does not, and of what is on them.
var templateDrivers = []string{"virtio_net", "virtio_blk", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "isofs", "overlay"}

// isTemplate reports whether this guest is a template.
func isTemplate() bool {
	words, err := os.ReadFile("/proc/cmdline")
	return err == nil && slices.Contains(strings.Fields(string(words)), templateWord)
}

// awaitStart is where a template waits until it is a machine. The agent answers from here on, so that the host knows when
// it may save the state. Nothing that is to be different in each machine may be made before: nothing random is, and
// no connection.
func (in *initProcess) awaitStart(ctx context.Context) {
	for _, driver := range templateDrivers {
		if in.loader == nil {
			break
		}
		if err := in.loader.Load(driver); err != nil {
			in.console.Printf("A driver is not loaded in advance: %v", err)
		}
	}
	close(in.answering)
	select {
	case <-ctx.Done():
		return
	case <-in.started:
	}
	in.console.Printf("The guest starts from a template")
	if err := system.RescanPCI(); err != nil {
		in.console.Printf("The network and the disks are missing: %v", err)
	}
}

// Start implements agent.Guest.
func (g guest) Start(entropy []byte) error {
	if err := system.Reseed(entropy); err != nil {
		return err
	}
	g.startOnce.Do(func() { close(g.started) })
	return nil
}
