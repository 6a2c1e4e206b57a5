package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/manager"
)

// Contestants that are measured until they have an address, and until they show the prompt of a shell by SSH.
const (
	reachedBare    = "bare QEMU, with SSH"
	reachedBoot    = "VirtualMachine, with SSH"
	reachedInstant = "from a template, with SSH"
)

const sshPort = 22

// newKey makes the key by which the benchmark logs in to machines.
func newKey() (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(private)
}

// hasAddress is what the default guest writes to its console when an interface has an address.
const hasAddress = " has the address "

// withLogin is the user data of guests that let the benchmark in.
func (b *bench) withLogin() string {
	return fmt.Sprintf("#cloud-config\nssh_authorized_keys: [%q]\n", bytes.TrimSpace(ssh.MarshalAuthorizedKey(b.key.PublicKey())))
}

// newReachable returns a machine that the benchmark can log in to.
func (b *bench) newReachable(namespace string, i int) *v1alpha1.VirtualMachine {
	vm := newVirtualMachine(namespace, i, b.withLogin())
	vm.Spec.Ports = []v1alpha1.Port{{Name: "ssh", Port: sshPort}}
	return vm
}

// reach creates a machine that the benchmark can log in to, waits until it has, and removes the machine.
func (b *bench) reach(ctx context.Context, s *harness.Sample) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	var machines *group
	var times reached
	work, workCtx := errgroup.WithContext(ctx)
	work.Go(func() (err error) {
		machines, err = b.createIn(workCtx, s, namespace, func(i int) *v1alpha1.VirtualMachine { return b.newReachable(namespace, i) })
		return err
	})
	work.Go(func() (err error) {
		logs := filepath.Join(manager.MachinesDir(b.stateDir()), "machines", "*", "serial.log") // no other machine runs
		times, err = b.awaitReached(workCtx, logs, func() (string, error) { return b.endpoint(workCtx, namespace) })
		return err
	})
	if err := work.Wait(); err != nil {
		return err
	}
	times.set(s, machines.began)
	return b.remove(ctx, s, namespace)
}

// reachBare does the same with a bare machine, whose port is forwarded by QEMU.
func (b *bench) reachBare(ctx context.Context, s *harness.Sample) (err error) {
	free, err := b.freePorts(1)
	if err != nil {
		return err
	}
	machine := *b.reachable
	machine.card = func(int) string { return fmt.Sprintf("%s,hostfwd=tcp:%s-:%d", userCard, free[0], sshPort) }
	started, err := machine.start(1, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.stop()) }()
	times, err := b.awaitReached(ctx, filepath.Join(started.folder(0), "serial.log"), func() (string, error) { return free[0].String(), nil })
	times.set(s, started.began)
	return explain("the guest", err, started.folder(0))
}

// endpoint returns the address of the host that leads to the SSH server of the only machine of a namespace.
func (b *bench) endpoint(ctx context.Context, namespace string) (string, error) {
	vm, err := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace).Get(ctx, "vm-0", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if vm.Status.Server == nil || len(vm.Status.Server.Endpoints) == 0 {
		return "", fmt.Errorf("the VirtualMachine %s has no endpoint", vm.Name)
	}
	return vm.Status.Server.Endpoints[0].Address, nil
}

// reached is when a machine had an address, and when it has shown a prompt.
type reached struct{ address, prompt time.Time }

func (r reached) set(s *harness.Sample, began time.Time) {
	s.SetTimes("address", r.address.Sub(began))
	s.SetTimes("prompt", r.prompt.Sub(began))
}

// awaitReached waits until the guest says in the log that the pattern matches that it has an address, and then for a prompt.
func (b *bench) awaitReached(ctx context.Context, pattern string, endpoint func() (string, error)) (r reached, err error) {
	err = harness.Until(ctx, 2*time.Millisecond, func() error {
		logs, err := filepath.Glob(pattern)
		for _, path := range logs {
			if text, readErr := os.ReadFile(path); readErr == nil && strings.Contains(string(text), hasAddress) {
				return nil
			}
		}
		return errors.Join(err, errors.New("it has no address"))
	})
	if err != nil {
		return r, err
	}
	r.address = time.Now()
	err = harness.Until(ctx, 2*time.Millisecond, func() error {
		address, err := endpoint()
		if err != nil {
			return err
		}
		return b.prompt(ctx, address)
	})
	r.prompt = time.Now()
	return r, err
}

// prompt logs in by SSH, with a terminal, and waits for the prompt of the shell. It gives up if nobody greets it within a second.
func (b *bench) prompt(ctx context.Context, address string) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer closeAtEnd(ctx, conn)()
	if err := conn.SetReadDeadline(time.Now().Add(askAgain)); err != nil {
		return err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	client, channels, requests, err := ssh.NewClientConn(&begun{conn, io.MultiReader(bytes.NewReader(first), conn)}, address, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a machine of this run
	})
	if err != nil {
		return err
	}
	session, err := ssh.NewClient(client, channels, requests).NewSession()
	if err != nil {
		return err
	}
	output, err := session.StdoutPipe()
	if err == nil {
		err = session.RequestPty("xterm", 24, 80, ssh.TerminalModes{})
	}
	if err == nil {
		err = session.Shell()
	}
	for shown := ""; err == nil; {
		part := make([]byte, 256)
		var n int
		n, err = output.Read(part)
		if shown += string(part[:n]); strings.Contains(shown, "# ") {
			return nil
		}
	}
	return err
}

// begun is a connection whose first byte has been read.
type begun struct {
	net.Conn
	all io.Reader
}

func (c *begun) Read(p []byte) (int, error) { return c.all.Read(p) }

// measureReached measures how soon contestants can be reached, one machine at a time.
func (b *bench) measureReached(ctx context.Context, contestants ...string) error {
	return b.InTurns(b.Rounds, aloneSize, contestants, "prompt", func(s *harness.Sample) error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
		defer cancel()
		if s.Contestant == reachedBare {
			return b.reachBare(ctx, s)
		}
		return b.reach(ctx, s)
	})
}

func (b *bench) reportReached() {
	all := b.Samples
	of := all.Of(reachedInstant, aloneSize)
	if len(of) > 0 {
		b.Target("1 machine from a template: address", "≤", addressLimit, 1000*of.Median("address", harness.Last), " ms",
			"from its creation until the guest says so")
		b.Target("1 machine from a template: SSH prompt", "≤", promptLimit, 1000*of.Median("prompt", harness.Last), " ms", "the same, until a shell has shown it")
	}
	if len(all.Of(reachedBoot, aloneSize)) == 0 {
		return
	}
	b.Printf("\n## Until a machine can be reached\n")
	b.SampleTable(aloneSize, []string{reachedBare, reachedBoot, reachedInstant},
		harness.Column{Header: "ready", Figure: "ready", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "address", Figure: "address", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "× bare", Figure: "address", Stat: harness.Last, Over: reachedBare},
		harness.Column{Header: "SSH prompt", Figure: "prompt", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "× bare", Figure: "prompt", Stat: harness.Last, Over: reachedBare})
}
