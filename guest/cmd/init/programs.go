package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/guest/internal/seed"
	"github.com/keelson-dev/keelson/guest/internal/sshd"
)

// shell is the program that interprets commands.
const shell = "/bin/sh"

// outputFile gets what the seed's commands print, as with cloud-init.
const outputFile = "/var/log/cloud-init-output.log"

// hostKeyFile has the host key of SSH.
const hostKeyFile = "/etc/ssh/ssh_host_ed25519_key"

// networkTimeout is how long the seed's commands wait for an address.
const networkTimeout = 30 * time.Second

// headStart is how long SSH and the shell wait for an address. They would delay it, because an emulated CPU is slow at code
// that it has not run before.
const headStart = time.Second

// searchPath is where the guest's programs are.
const searchPath = "/bin"

// environment is what programs start with.
func environment() []string {
	return []string{"PATH=" + searchPath, "HOME=/root", "USER=root", "SHELL=" + shell, `PS1=\u@\h:\w\$ `}
}

// command returns a program that runs a line for the shell, or a shell for "".
func command(line string) *exec.Cmd {
	cmd := exec.Command(shell)
	if line != "" {
		cmd = exec.Command(shell, "-c", line)
	}
	cmd.Dir = "/root"
	cmd.Env = environment()
	return cmd
}

// runWhenOnline runs the seed's commands when there is a network, or when there has
// been none for so long that the commands had better try.
func (in *initProcess) runWhenOnline(ctx context.Context, commands []seed.Command) {
	if len(commands) == 0 {
		return
	}
	if !in.awaitOnline(ctx, networkTimeout) && ctx.Err() == nil {
		in.console.Printf("There is no network; the seed's commands run all the same")
	}
	in.runCommands(ctx, commands)
}

// awaitOnline waits until an interface has an address, but not longer than timeout. It reports whether one has.
func (in *initProcess) awaitOnline(ctx context.Context, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-in.online:
		return true
	}
	return false
}

// runCommands runs one command after the other; a failure is told and does not keep
// the next from running.
func (in *initProcess) runCommands(ctx context.Context, commands []seed.Command) {
	if len(commands) == 0 {
		return
	}
	output, err := os.OpenFile(outputFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		in.console.Printf("The seed's commands have no log: %v", err)
	}
	defer output.Close() // nil does no harm
	failed := 0
	for i, c := range commands {
		if ctx.Err() != nil {
			return
		}
		cmd, err := seedCommand(c)
		if err == nil {
			if output != nil {
				cmd.Stdout, cmd.Stderr = output, output
			}
			err = in.processes.Run(cmd)
		}
		if err != nil {
			failed++
			in.console.Printf("Command %d of the seed failed, see %s: %v", i+1, outputFile, err)
		}
	}
	in.console.Printf("Commands of the seed: %d ran, %d failed", len(commands), failed)
}

// seedCommand returns the program to run. A script becomes a file first.
func seedCommand(c seed.Command) (*exec.Cmd, error) {
	cmd := command(c.Line)
	switch {
	case c.Script != nil:
		const file = "/run/seed-script"
		if err := os.WriteFile(file, c.Script, 0o700); err != nil {
			return nil, err
		}
		cmd = exec.Command(file)
	case len(c.Args) != 0:
		cmd = exec.Command(c.Args[0], c.Args[1:]...)
	}
	cmd.Dir = "/"
	cmd.Env = environment()
	return cmd, nil
}

// startSSH serves SSH in the background if the seed names who may log in; in.applying is held. The first time, it also
// starts the shell on the console, which would delay SSH.
func (in *initProcess) startSSH(ctx context.Context) {
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	in.endSSH = func() { cancel(); <-ended }
	found := in.seed
	go func() {
		defer close(ended)
		serve, err := in.listenSSH(serving, found)
		in.shellOnce.Do(func() { go in.keepShell(ctx) })
		if err == nil {
			err = serve()
		}
		if err != nil {
			in.console.Printf("No SSH: %v", err)
		}
	}()
}

// listenSSH returns a function that serves SSH until the context ends. Until it is called, connections wait.
func (in *initProcess) listenSSH(ctx context.Context, found *seed.Seed) (serve func() error, err error) {
	listener, err := net.Listen("tcp", sshd.Address)
	if err != nil {
		return nil, err
	}
	in.awaitOnline(ctx, headStart)
	server, err := sshd.New(sshd.Config{
		AuthorizedKeys: found.AuthorizedKeys,
		HostKeys:       found.HostKeys,
		KeyFile:        hostKeyFile,
		Command:        command,
		Start:          in.processes.Start,
		Printf:         in.console.Printf,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	in.console.Printf("SSH is ready, the host key is %s", strings.Join(server.Fingerprints, " and "))
	return func() error { return server.Serve(ctx, listener) }, nil
}

// keepShell keeps a shell on the console: whoever has the machine's console has the
// machine.
func (in *initProcess) keepShell(ctx context.Context) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		started := time.Now()
		err := in.consoleShell()
		if errors.Is(err, os.ErrNotExist) {
			in.console.Printf("No shell on the console: %v", err)
			return
		}
		if time.Since(started) > 10*time.Second {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// consoleShell runs a shell on the console until it ends.
func (in *initProcess) consoleShell() error {
	// /dev/console cannot be a controlling terminal, the device behind it can.
	active, err := os.ReadFile("/sys/class/tty/console/active")
	if err != nil {
		return err
	}
	names := strings.Fields(string(active))
	if len(names) == 0 {
		return os.ErrNotExist
	}
	terminal, err := os.OpenFile("/dev/"+names[len(names)-1], os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer terminal.Close()
	cmd := command("")
	cmd.Env = append(cmd.Env, "TERM=vt102")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = in.processes.Run(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // a shell may end as it likes
	}
	return err
}
