package controlplane

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// Client certificates can be revoked: those of a generation are signed by an authority of their own, and kube-apiserver
// trusts the authority of the present generation, and for a while that of the one before. The first generation, 0, is signed by the
// authority that also signs for the API; that one stays, because clients know the API by it.
//
// The state of a rotation is stored before any file of it is created: after a kill at any moment, the next Start continues
// with the same generation.

// rotation is which generation of client certificates is the present one.
type rotation struct {
	// Value is the Options.Rotation that began it.
	Value string `json:"value"`
	// Generation counts the rotations.
	Generation int `json:"generation"`
	// OldUntil is until when the generation before is trusted.
	OldUntil time.Time `json:"oldUntil"`
}

// clientAuthority names the files of the authority of client certificates of a generation.
func clientAuthority(generation int) string {
	if generation == 0 {
		return "ca"
	}
	return fmt.Sprintf("client-ca-%d", generation)
}

// clientName names the files of the certificate of a client. Each generation has keys of its own, because those of the one
// before may be in wrong hands.
func clientName(client string, generation int) string {
	if generation == 0 {
		return client
	}
	return fmt.Sprintf("%s-%d", client, generation)
}

// clientTrust names the file with the authorities whose client certificates kube-apiserver trusts. It reads it again when it
// changes.
func clientTrust(generation int) string {
	if generation == 0 {
		return "ca.crt"
	}
	return fmt.Sprintf("client-trust-%d.crt", generation)
}

// Rotation returns the Options.Rotation of the last rotation.
func (cp *ControlPlane) Rotation() string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.state.Rotation.Value
}

// beginRotation notes that there is to be another generation of client certificates, if one is asked for that is not the
// present one.
func (cp *ControlPlane) beginRotation() {
	if cp.opts.Rotation == "" || cp.opts.Rotation == cp.state.Rotation.Value {
		return
	}
	cp.state.Rotation = rotation{
		Value: cp.opts.Rotation, Generation: cp.state.Rotation.Generation + 1,
		OldUntil: cp.opts.Clock.Now().Add(cp.opts.RotationOverlap),
	}
}

// generation returns the present generation of client certificates. It does not change while a control plane runs.
func (cp *ControlPlane) generation() int { return cp.state.Rotation.Generation }

// ofGeneration returns certificates with those of clients as they are in the present generation.
func (cp *ControlPlane) ofGeneration(wanted []certificate) []certificate {
	g := cp.generation()
	if g == 0 {
		return wanted
	}
	var all []certificate
	for _, c := range wanted {
		if c.isClient() {
			c.name, c.issuer = clientName(c.name, g), clientAuthority(g)
		}
		all = append(all, c)
		if c.name == clientAuthority(0) {
			all = append(all, newAuthority(clientAuthority(g), fmt.Sprintf("keelson-client-ca-%d", g)))
		}
	}
	return all
}

// isClient reports whether the certificate is one that kube-apiserver knows a client by.
func (c certificate) isClient() bool {
	return c.issuer == clientAuthority(0) && slices.Contains(c.Usages, x509.ExtKeyUsageClientAuth)
}

// writeClientTrust writes whose client certificates kube-apiserver trusts now, and removes the keys of the generation before
// when that is not trusted any more. It returns when it has to be called again; zero means never.
func (cp *ControlPlane) writeClientTrust() (again time.Duration, err error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	r := cp.state.Rotation
	if r.Generation == 0 {
		return 0, nil
	}
	trusted := []string{clientAuthority(r.Generation)}
	left := r.OldUntil.Sub(cp.opts.Clock.Now())
	if left > 0 {
		trusted = append(trusted, clientAuthority(r.Generation-1))
	}
	var bundle bytes.Buffer
	for _, name := range trusted {
		data, err := os.ReadFile(cp.dir.pki(name + ".crt"))
		if errors.Is(err, fs.ErrNotExist) && name != trusted[0] {
			continue // it was deleted, which revokes it immediately
		}
		if err != nil {
			return 0, fmt.Errorf("authorities of clients: %w", err)
		}
		bundle.Write(data)
	}
	if err := updateFile(cp.dir.pki(clientTrust(r.Generation)), bundle.Bytes(), atomicfile.Volatile); err != nil {
		return 0, err
	}
	if left > 0 {
		return left, nil
	}
	return 0, cp.removeGenerations()
}

// removeGenerations removes the files of all generations but the present one. The authority of the first one stays.
func (cp *ControlPlane) removeGenerations() error {
	entries, err := os.ReadDir(cp.dir.path("pki"))
	if err != nil {
		return err
	}
	present := fmt.Sprintf("-%d", cp.generation())
	var clients []string
	for _, c := range certificates {
		if c.isClient() {
			clients = append(clients, c.name)
		}
	}
	var errs []error
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), filepath.Ext(entry.Name()))
		base, number, numbered := cutNumber(name)
		isOld := slices.Contains(clients, name) || numbered && "-"+number != present &&
			(slices.Contains(clients, base) || base == "client-ca" || base == "client-trust")
		if isOld && filepath.Ext(entry.Name()) != ".kubeconfig" {
			errs = append(errs, removeIfExists(cp.dir.pki(entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// cutNumber splits the number off from a name of a generation.
func cutNumber(name string) (base, number string, found bool) {
	i := strings.LastIndex(name, "-")
	if i < 0 || i == len(name)-1 || strings.Trim(name[i+1:], "0123456789") != "" {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// endOverlap waits until the generation before is not to be trusted any more, and sees to that.
func (cp *ControlPlane) endOverlap(ctx context.Context) {
	for {
		again, err := cp.writeClientTrust()
		if err != nil {
			cp.opts.Log.Error(err, "Could not revoke the old client certificates, retrying later", "interval", overlapRetry)
			again = overlapRetry
		}
		if again == 0 {
			return
		}
		timer := cp.opts.Clock.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// overlapRetry is the pause after an attempt to revoke that has failed.
const overlapRetry = 10 * time.Second
