package qemu

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
)

const (
	// quietCPU is the processor time of the host, in seconds per second, up to which a machine is quiet. The timers of a guest
	// that has nothing to do need less, also with software emulation.
	quietCPU = 0.05
	// quietBytes is the network traffic per second up to which it is quiet: DHCP, ARP, the time, a readiness probe.
	quietBytes = 512
	// wakePoll is the interval of looks whether a machine is awake.
	wakePoll = 10 * time.Millisecond
)

// look is what a machine had used at a moment.
type look struct {
	at         time.Time
	cpuSeconds float64
	// network is nil if it is not known.
	network *networkUse
}

// networkUse is the use of the network by a machine.
type networkUse struct {
	backend.NetworkTraffic
	// inbound are the open connections to it, and inboundTotal all so far.
	inbound      int
	inboundTotal uint64
}

// isQuiet reports whether the machine was not in use between two looks. What is not known counts as use.
func isQuiet(before, now look) bool {
	if before.network == nil || now.network == nil {
		return false
	}
	was, is := before.network, now.network
	elapsed := now.at.Sub(before.at).Seconds()
	bytes := func(n *networkUse) float64 { return float64(n.ReceivedBytes) + float64(n.TransmittedBytes) }
	switch {
	case is.inbound > 0, is.inboundTotal != was.inboundTotal:
		return false
	case bytes(is) < bytes(was): // the network was restarted
		return false
	}
	return now.cpuSeconds-before.cpuSeconds <= quietCPU*elapsed && bytes(is)-bytes(was) <= quietBytes*elapsed
}

// noteUse notes whether the machine was in use since the last look; m.mu is held.
func (m *machine) noteUse(now look) {
	if m.sessions > 0 || m.owner.State().Phase == owner.Full || !isQuiet(m.lastLook, now) {
		m.lastActive = now.at
	}
	m.lastLook = now
}

// isUsed reports whether someone has connected to the machine since the last look.
func (m *machine) isUsed(ctx context.Context) bool {
	var now *networkUse
	if w := m.d.networks.find(m.id.Namespace); w != nil {
		ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
		defer cancel()
		if found, err := describeNetwork(ctx, w.dir); err == nil {
			now = useOf(&found)[m.id.UID]
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.lastLook.network
	if m.sessions == 0 && now != nil && was != nil && now.inbound == 0 && now.inboundTotal == was.inboundTotal {
		return false
	}
	m.lastActive = time.Now()
	return true
}

// useOf returns the use of a network by its machines.
func useOf(found *backend.Network) map[types.UID]*networkUse {
	all := map[types.UID]*networkUse{}
	for _, port := range found.Machines {
		all[port.UID] = &networkUse{
			NetworkTraffic: backend.NetworkTraffic{ReceivedBytes: port.ReceivedBytes, TransmittedBytes: port.TransmittedBytes},
			inbound:        port.Inbound, inboundTotal: port.InboundTotal,
		}
	}
	return all
}

// changeSleep changes the options of a machine that is asleep.
func (m *machine) changeSleep(options backend.SleepOptions) error {
	saved := m.savedMemory()
	if saved == nil || saved.SleepOptions == options {
		return nil
	}
	changed := *saved
	changed.SleepOptions = options
	err := m.record(func(def *definition) { def.Asleep = &changed }, func(found *definition) bool {
		return found.Asleep != nil && found.Asleep.SleepOptions == options
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.wanted = false
	m.mu.Unlock()
	m.d.networks.touch(m.id.Namespace)
	m.notifyChange()
	return nil
}

// wakesOnConnection reports whether the machine is asleep until someone connects to it; m.mu is held.
func (m *machine) wakesOnConnection() bool {
	return m.run == "" && m.def.Asleep != nil && m.def.Asleep.WakeOnConnection
}

// want notes that someone has connected to a machine that is asleep.
func (m *machine) want() {
	m.mu.Lock()
	isNew := m.wakesOnConnection() && !m.wanted
	m.wanted = m.wanted || isNew
	m.mu.Unlock()
	if isNew {
		m.notifyChange()
	}
}

// Attend implements backend.Attender.
func (d *Driver) Attend(ctx context.Context, id backend.Identity) (release func(), err error) {
	m, err := d.find(id)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.sessions++
	m.lastActive = time.Now()
	m.mu.Unlock()
	release = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sessions--
		m.lastActive = time.Now()
	}
	m.want()
	if err := m.awaitAwake(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// awaitAwake waits for a machine that someone has connected to, while it is asleep or wakes.
func (m *machine) awaitAwake(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, wakePoll, true, func(context.Context) (bool, error) {
		task, _ := m.task.State()
		m.mu.Lock()
		defer m.mu.Unlock()
		wakes := m.wanted && (m.def.Asleep != nil && m.def.Asleep.WakeOnConnection || task == backend.TaskStart)
		return !wakes, nil
	})
	if err != nil {
		return fmt.Errorf("machine %s does not wake: %w", m.id.UID, backend.ErrUnavailable)
	}
	return nil
}

// watchWanted has machines woken that someone wants to reach, as long as one of the network is asleep.
func (w *namespaceNetwork) watchWanted() {
	var seen uint64
	for {
		number, err := w.nextWanted(seen)
		seen = number
		if err == nil {
			continue
		}
		w.mu.Lock()
		w.watching = w.sleepers && w.n.d.ctx.Err() == nil
		goesOn := w.watching
		w.mu.Unlock()
		if !goesOn {
			return
		}
		select {
		case <-time.After(networkRetry):
		case <-w.n.d.ctx.Done():
		}
	}
}

// nextWanted waits until someone wants to reach a machine for the first time since the number was seen, and returns the new number.
func (w *namespaceNetwork) nextWanted(seen uint64) (uint64, error) {
	client, release, err := networkClient(w.dir)
	if err != nil {
		return seen, err
	}
	defer release()
	wanted, err := client.Wanted(w.n.d.ctx, seen)
	if err != nil {
		return seen, err
	}
	for _, uid := range wanted.UIDs {
		if m, err := w.n.d.find(backend.Identity{UID: types.UID(uid)}); err == nil {
			m.want()
		}
	}
	return wanted.Number, nil
}

// watchSleepers begins to watch for machines that someone wants to reach, if one is asleep.
func (w *namespaceNetwork) watchSleepers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sleepers && !w.watching {
		w.watching = true
		w.n.d.tasks.Go(w.watchWanted)
	}
}
