package savedmemory

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// ForkTimeout is how long a guest that goes on with the memory of another machine may take until it knows which machine it is. It
	// boots then.
	ForkTimeout = 5 * time.Minute
	// NoGuestForks is why a machine with an image boots.
	NoGuestForks = "only the default guest can resume as another machine"
	// entropyBytes is the number of random bytes that a guest gets from its host.
	entropyBytes = 64
)

// ErrUnnamed is why the memory of a machine that goes on with that of another one is in no snapshot.
var ErrUnnamed = errors.New("the guest does not know yet which machine it is; a snapshot with its memory can be taken when the machine is ready")

// NewEntropy returns random bytes for a guest.
func NewEntropy() []byte {
	entropy := make([]byte, entropyBytes)
	_, _ = rand.Read(entropy) // it never fails
	return entropy
}

// SetLink connects the network card of a QEMU, or disconnects it. The state of the card is in the memory, so it is set when that is loaded.
func SetLink(ctx context.Context, conn *qmp.Client, up bool) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return conn.Run(ctx, "set_link", map[string]any{"name": "net", "up": up}, nil)
}

// Rename tells a guest that has the memory of another machine which machine it is, and connects its network. The instance, the UID of the
// machine, may be empty if no other machine has the hardware address. The error is an UnusableError if the guest refuses.
func Rename(ctx context.Context, agent, monitor *qmp.Client, address, instance string) error {
	arguments := map[string]any{"entropy": NewEntropy(), "hardware-address": address}
	if instance != "" {
		arguments["instance-id"] = instance
	}
	calling, cancel := context.WithTimeout(ctx, Timeout) // the guest reads disks for that
	defer cancel()
	err := agent.Run(calling, "keelson-fork", arguments, nil)
	if refused := (*qmp.Error)(nil); errors.As(err, &refused) {
		return Unusable("the guest did not become another machine: %v", err)
	}
	if err != nil {
		return err
	}
	Step("guest renamed")
	return SetLink(ctx, monitor, true)
}
