package qemu

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/keelson-dev/keelson/internal/sandbox"
)

// programDirs returns the directories with the libraries and firmware of a QEMU that is not part of the system.
func programDirs(binary string) []string {
	real, err := filepath.EvalSymlinks(binary)
	if err != nil || filepath.Base(filepath.Dir(real)) != "bin" {
		return nil
	}
	var all []string
	for _, dir := range []string{"lib", "lib64", "share/qemu", "share/seabios"} {
		all = append(all, filepath.Join(filepath.Dir(filepath.Dir(real)), dir))
	}
	return all
}

// user returns the user of the machine, nil for the manager's user.
func (m *machine) user() *sandbox.User {
	m.mu.Lock()
	defer m.mu.Unlock()
	user := newUser(m.def.User)
	if user != nil {
		user.Groups = m.d.users.groups
	}
	return user
}

// claimUser allocates a user for the machine, and records it before that user owns anything.
func (m *machine) claimUser() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	user, err := m.d.users.claim(m.id.UID, m.def.User)
	if err != nil || user == m.def.User {
		return err
	}
	m.def.User = user
	return m.def.write(m.dir)
}

// newFile creates an empty file owned by user; nil means the manager's user.
func newFile(path string, user *sandbox.User) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if user == nil {
		return nil
	}
	return file.Chown(user.UID, user.GID)
}

// giveFile changes the owner of a file to user. It does nothing if user is nil, the manager's user.
func giveFile(path string, user *sandbox.User) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if user == nil {
		user = &sandbox.User{}
	}
	// A compromised QEMU may have owned the file.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) == user.UID && int(owner.Gid) == user.GID {
		return nil
	}
	return file.Chown(user.UID, user.GID)
}

// readable returns a path of a file that a user can open by its descriptor: its own, or that of a copy, relative to the folder
// of that. QEMU opens kernels itself.
func readable(path, copied string, user *sandbox.User) (string, error) {
	owner, all, err := readableBy(path)
	if err != nil {
		return "", err
	}
	id := os.Geteuid()
	if user != nil {
		id = user.UID
	}
	if all || int(owner.Uid) == id {
		return path, nil
	}
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	if err := newFile(copied, user); err != nil {
		return "", err
	}
	to, err := os.OpenFile(copied, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return "", fmt.Errorf("copy %s, which is not world-readable, for the user of the machine: %w", path, err)
	}
	return filepath.Base(copied), to.Close()
}

// confine detects which mechanisms can isolate machines from the host, and logs them once.
func (d *Driver) confine() error {
	users, why, err := newUsers(d.options.Users)
	if err != nil {
		return err
	}
	d.users = users
	log := d.options.Log
	if why == "" {
		log.Info("Each machine runs as its own user", "range", users.limits.String())
	} else {
		log.Info("Machines run as the user of the manager", "why", why)
	}
	if d.kvm {
		if err := users.useKVM(); err != nil && d.options.Accelerator == AccelKVM {
			return err
		} else if err != nil {
			d.kvm = false
			log.Info("Machines do not use KVM", "why", err.Error())
		}
	}
	if why := landlockLimit(); why != "" {
		log.Info("Landlock does not confine machines fully", "why", why)
	} else {
		log.Info("Machines are confined by Landlock", "version", sandbox.Landlock())
	}
	return nil
}

// fullLandlock is the first version of Landlock that denies everything listed in docs/security.md.
const fullLandlock = 6
