package qemu

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// answer is what a guest has said. It is kept for the next manager, so that this one need
// not ask all guests at once before a machine looks as it did.
type guestReport struct {
	// Run is the one in which it was said.
	Run       string   `json:"run"`
	Addresses []string `json:"addresses,omitempty"`
}

// readAnswer returns what the guest of a machine has said in a run; nil if nothing is
// known. What cannot be read is not known: the guest can be asked.
func readGuestReport(dir, run string) *guestReport {
	raw, err := os.ReadFile(filepath.Join(dir, answerFile))
	if err != nil {
		return nil
	}
	var said guestReport
	if json.Unmarshal(raw, &said) != nil || said.Run != run {
		return nil
	}
	return &said
}

// write replaces the answer in a folder. It only matters while the process runs, so it need not survive a power cut.
func (a *guestReport) write(dir string) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, answerFile), append(raw, '\n'), atomicfile.Volatile)
}

// keepAnswer keeps what the guest has said, if it is new.
func (m *machine) saveGuestReport(ctx context.Context, addresses []string) {
	m.mu.Lock()
	said := &guestReport{Run: m.run, Addresses: addresses}
	known := m.guestReport != nil && m.guestReport.Run == said.Run && slices.Equal(m.guestReport.Addresses, addresses)
	if known || m.run == "" || ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	m.guestReport = said
	m.mu.Unlock()
	if err := said.write(m.dir); err != nil {
		// The next manager asks the guest.
		m.d.options.Log.V(1).Info("Answer of a guest cannot be kept", "machine", m.id.UID, "why", err.Error())
	}
}

// recall takes up what the guest has said to an earlier manager; m.mu is held.
func (m *machine) restoreGuestReport() {
	if m.guestReport = readGuestReport(m.dir, m.run); m.guestReport != nil {
		m.addresses, m.awaitingAgent = reachable(m.guestReport.Addresses), true
	}
}
