package qemu

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/sandbox"
)

// UserRange is a range of host users, and of groups with the same IDs. The zero value is empty.
type UserRange struct{ First, Last int }

// ParseUserRange parses FIRST-LAST; "" is the empty range.
func ParseUserRange(text string) (UserRange, error) {
	if text == "" {
		return UserRange{}, nil
	}
	first, last, _ := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	r := UserRange{int(from), int(to)} //nolint:gosec // 31 bits
	switch {
	case err1 != nil || err2 != nil || r.Last < r.First:
		return UserRange{}, fmt.Errorf("must be a range of user IDs, such as 2100000000-2100065535")
	case r.First < 1000:
		return UserRange{}, fmt.Errorf("must begin at 1000 or above: lower user IDs belong to the system")
	case r.Last == r.First:
		return UserRange{}, fmt.Errorf("must have at least two user IDs: the first one reads images")
	}
	return r, nil
}

// String returns the form that ParseUserRange reads.
func (r UserRange) String() string {
	if r == (UserRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func (r UserRange) has(id int) bool { return r.First <= id && id <= r.Last && id > 0 }

// users allocates a user for each machine. The first one of the range is for qemu-img when it reads
// images.
type users struct {
	// limits is the range; without one, machines run as the manager's user.
	limits UserRange
	// groups are the supplementary groups of all machines: the group of /dev/kvm, if necessary.
	groups []int

	mu    sync.Mutex
	taken map[int]types.UID
}

// claim returns the user of a machine: its previous one, if it is in the range and free; 0 if
// machines have none. Other managers on the host may use the same range, so the search starts at a
// hash of the UID and skips users that have processes.
func (u *users) claim(uid types.UID, before int) (int, error) {
	if u.limits == (UserRange{}) {
		return 0, nil
	}
	busy, err := busyUsers()
	if err != nil {
		return 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	free := func(id int) bool {
		holder, taken := u.taken[id]
		return u.limits.has(id) && id != u.limits.First && !busy[id] && (!taken || holder == uid)
	}
	size := u.limits.Last - u.limits.First
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid)) // never fails
	for i := -1; i < size; i++ {
		id := before
		if i >= 0 {
			id = u.limits.First + 1 + (int(sum.Sum32())+i)%size
		}
		if free(id) {
			u.releaseLocked(uid)
			u.taken[id] = uid
			return id, nil
		}
	}
	return 0, fmt.Errorf("no user is free for machine %s: virtualMachines.uidRange: %s has %d; make it larger", uid, u.limits, size)
}

// adopt records the user of an existing machine.
func (u *users) adopt(uid types.UID, id int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id != 0 {
		u.taken[id] = uid
	}
}

// release frees the user of a deleted machine.
func (u *users) release(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.releaseLocked(uid)
}

// releaseLocked is release; u.mu is held.
func (u *users) releaseLocked(uid types.UID) {
	for id, holder := range u.taken {
		if holder == uid {
			delete(u.taken, id)
		}
	}
}

// share lets the users of machines read a downloaded image through a descriptor. They cannot enter
// its directory.
func (u *users) share(path string) error {
	if u.limits == (UserRange{}) {
		return nil
	}
	return os.Chmod(path, 0o644)
}

// reader returns the user that reads an image in the sandbox, where root has no special rights: an
// unprivileged one, or the owner of a file that is not world-readable.
func (u *users) reader(path string) (*sandbox.User, error) {
	if u.limits == (UserRange{}) {
		return nil, nil
	}
	owner, open, err := readableBy(path)
	if err != nil {
		return nil, err
	}
	if open {
		return newUser(u.limits.First), nil
	}
	return &sandbox.User{UID: int(owner.Uid), GID: int(owner.Gid)}, nil
}

// readableBy returns the owner of a file, and whether all users may read it.
func readableBy(path string) (owner *syscall.Stat_t, all bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return nil, false, errors.New("this system does not report the owner of a file")
	}
	return owner, info.Mode()&0o004 != 0, nil
}

// newUser returns a user with the group of the same number.
func newUser(id int) *sandbox.User {
	if id == 0 {
		return nil
	}
	return &sandbox.User{UID: id, GID: id}
}

// busyUsers returns the users of the host that have processes.
func busyUsers() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find the users of processes: %w", err)
	}
	busy := map[int]bool{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		info, err := os.Stat("/proc/" + entry.Name())
		if err != nil {
			continue // it has just ended
		}
		if owner, known := info.Sys().(*syscall.Stat_t); known {
			busy[int(owner.Uid)] = true
		}
	}
	return busy, nil
}
