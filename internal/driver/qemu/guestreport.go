package qemu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// guestReport is the last response of a guest agent. It is persisted, so that a new manager can
// restore the status of all machines without querying all guests at once.
type guestReport struct {
	// Run is the run in which the guest responded.
	Run       string   `json:"run"`
	Addresses []string `json:"addresses,omitempty"`
}

// readGuestReport returns the report of a run, nil if there is none. An unreadable report
// counts as none, because the guest can be queried again.
func readGuestReport(dir, run string) *guestReport {
	raw, err := os.ReadFile(filepath.Join(dir, answerFile))
	if err != nil {
		return nil
	}
	var report guestReport
	if json.Unmarshal(raw, &report) != nil || report.Run != run {
		return nil
	}
	return &report
}

// write writes the report to a folder. It is only used while the process runs, so it need not survive a power failure.
func (a *guestReport) write(dir string) error {
	return atomicfile.WriteJSON(filepath.Join(dir, answerFile), a, atomicfile.Volatile)
}

// saveGuestReport persists a response of the guest if it differs from the last one.
func (m *machine) saveGuestReport(addresses []string) {
	m.mu.Lock()
	report := &guestReport{Run: m.run, Addresses: addresses}
	known := m.guestReport != nil && m.guestReport.Run == report.Run && slices.Equal(m.guestReport.Addresses, addresses)
	if known || m.run == "" {
		m.mu.Unlock()
		return
	}
	m.guestReport = report
	m.mu.Unlock()
	if err := report.write(m.dir); err != nil {
		// The next manager queries the guest.
		m.d.options.Log.V(1).Info("Could not save the report of a guest", "machine", m.id.UID, "why", err.Error())
	}
}
