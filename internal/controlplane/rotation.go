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
	"github.com/keelson-dev/keelson/internal/pki"
)

// Client certificates are revoked by rotation. Each generation has its own CA, and kube-apiserver trusts the CA of the current
// generation and, during the overlap, the previous one. Generation 0 is signed by the CA of the API's serving certificate; that
// CA stays, because clients verify the API with it.
//
// The state of a rotation is stored before any of its files is created, so that after a crash the next Start continues
// with the same generation.

// rotation identifies the current generation of client certificates.
type rotation struct {
	// Value is the Options.Rotation that triggered it.
	Value string `json:"value"`
	// Generation counts the rotations.
	Generation int `json:"generation"`
	// OldUntil is the time until which the previous generation is trusted.
	OldUntil time.Time `json:"oldUntil"`
}

// clientAuthority names the files of a generation's CA for client certificates.
func clientAuthority(generation int) string {
	if generation == 0 {
		return "ca"
	}
	return fmt.Sprintf("client-ca-%d", generation)
}

// clientName names the files of a client certificate. Each generation has new keys, because the previous ones may be
// compromised.
func clientName(client string, generation int) string {
	if generation == 0 {
		return client
	}
	return fmt.Sprintf("%s-%d", client, generation)
}

// clientTrust names the file with the CAs that kube-apiserver trusts for client certificates. kube-apiserver reloads it.
func (cp *ControlPlane) clientTrust() string {
	generation := cp.generation()
	if generation == 0 && len(cp.opts.Users) == 0 {
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

// beginRotation records a new generation of client certificates if Options.Rotation requests one.
func (cp *ControlPlane) beginRotation() {
	if cp.opts.Rotation == "" || cp.opts.Rotation == cp.state.Rotation.Value {
		return
	}
	cp.state.Rotation = rotation{
		Value: cp.opts.Rotation, Generation: cp.state.Rotation.Generation + 1,
		OldUntil: cp.opts.Clock.Now().Add(cp.opts.RotationOverlap),
	}
}

// generation returns the current generation of client certificates. It does not change while a control plane runs.
func (cp *ControlPlane) generation() int { return cp.state.Rotation.Generation }

// ofGeneration returns certificates with the client certificates of the current generation.
func (cp *ControlPlane) ofGeneration(wanted []pki.Certificate) []pki.Certificate {
	g := cp.generation()
	if g == 0 {
		return wanted
	}
	var all []pki.Certificate
	for _, c := range wanted {
		if isClient(c) {
			c.Name, c.Issuer = clientName(c.Name, g), clientAuthority(g)
		}
		all = append(all, c)
		if c.Name == clientAuthority(0) {
			all = append(all, pki.NewAuthority(clientAuthority(g), fmt.Sprintf("keelson-client-ca-%d", g)))
		}
	}
	return all
}

// isClient reports whether kube-apiserver authenticates a client by the certificate.
func isClient(c pki.Certificate) bool {
	return c.Issuer == clientAuthority(0) && slices.Contains(c.Usages, x509.ExtKeyUsageClientAuth)
}

// writeClientTrust writes the CAs that kube-apiserver trusts for client certificates, and removes the keys of the previous
// generation after the overlap. It returns the time until the next call; zero means never.
func (cp *ControlPlane) writeClientTrust() (again time.Duration, err error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	r := cp.state.Rotation
	if r.Generation == 0 && len(cp.opts.Users) == 0 {
		return 0, nil
	}
	trusted := []string{clientAuthority(r.Generation)}
	for _, u := range cp.opts.Users {
		trusted = append(trusted, u.Authority())
	}
	left := r.OldUntil.Sub(cp.opts.Clock.Now())
	if r.Generation > 0 && left > 0 {
		trusted = append(trusted, clientAuthority(r.Generation-1))
	}
	var bundle bytes.Buffer
	for _, name := range trusted {
		data, err := os.ReadFile(cp.dir.pki(name + ".crt"))
		if errors.Is(err, fs.ErrNotExist) && r.Generation > 0 && name == clientAuthority(r.Generation-1) {
			continue // it was deleted, which revokes it immediately
		}
		if err != nil {
			return 0, fmt.Errorf("authorities of clients: %w", err)
		}
		bundle.Write(data)
	}
	if err := updateFile(cp.dir.pki(cp.clientTrust()), bundle.Bytes(), atomicfile.Volatile); err != nil {
		return 0, err
	}
	switch {
	case r.Generation == 0:
		return 0, nil
	case left > 0:
		return left, nil
	}
	return 0, cp.removeGenerations()
}

// removeGenerations removes the files of all generations except the current one. The CA of generation 0 stays.
func (cp *ControlPlane) removeGenerations() error {
	entries, err := os.ReadDir(cp.dir.path("pki"))
	if err != nil {
		return err
	}
	present := fmt.Sprintf("-%d", cp.generation())
	var clients []string
	for _, c := range certificates {
		if isClient(c) {
			clients = append(clients, c.Name)
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

// cutNumber splits the generation number off a name.
func cutNumber(name string) (base, number string, found bool) {
	i := strings.LastIndex(name, "-")
	if i < 0 || i == len(name)-1 || strings.Trim(name[i+1:], "0123456789") != "" {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// endOverlap waits for the end of the overlap and then revokes the previous generation.
func (cp *ControlPlane) endOverlap(ctx context.Context) {
	for {
		again, err := cp.writeClientTrust()
		if err != nil {
			cp.opts.Log.Error(err, "Failed to revoke the old client certificates, will retry", "interval", overlapRetry)
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
