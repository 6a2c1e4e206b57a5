// Package sshkey has the SSH key of this user for machines.
package sshkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Dir returns the directory for the key, and for the host keys of machines.
func Dir() (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for the SSH key (%w): set HOME, or use --ssh-key", err)
	}
	return filepath.Join(base, "keelson", "ssh"), nil
}

// File is the private key in Dir.
const File = "id_ed25519"

// Public returns the public key, as a line of authorized_keys. The first call creates the key pair.
func Public() (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, File)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = newKey(path)
	}
	if err != nil {
		return "", fmt.Errorf("the SSH key for machines: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return "", fmt.Errorf("the SSH key %s cannot be read: %w; remove it to get a new one for new machines", path, err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))) + " keelson", nil
}

// newKey creates a private key. If another command creates one at the same time, both use the first one.
func newKey(path string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "keelson")
	if err != nil {
		return nil, err
	}
	own, err := writeKey(filepath.Dir(path), pem.EncodeToMemory(block))
	if err != nil {
		return nil, err
	}
	err = os.Link(own, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err := errors.Join(err, os.Remove(own)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// writeKey writes a key to a file of its own, which others cannot read, and returns its name.
func writeKey(dir string, text []byte) (string, error) {
	file, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	return file.Name(), errors.Join(err, file.Sync(), file.Close())
}
