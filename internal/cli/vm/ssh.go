package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/sshkey"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// login has the flags of a command that uses ssh.
type login struct {
	*target.Flags
	user, identity string
	port           uint16
}

func (l *login) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&l.user, "login", "l", "", "`user` in the guest (default: root in the default guest, loginUser of the VirtualMachineImage, otherwise yours)")
	fs.StringVarP(&l.identity, "identity", "i", "", "`file` with the private key (default: those of ssh, and the key that keelson vm create uses)")
	fs.Uint16VarP(&l.port, "port", "p", 22, "port of the SSH server in the guest")
}

func newSSH(flags *target.Flags) *cobra.Command {
	l := login{Flags: flags}
	cmd := &cobra.Command{
		Use:   "ssh NAME [-- COMMAND...]",
		Short: "Log in to a machine, or run a command in it",
		Long: `Log in to a machine with the ssh of this host, through the Kubernetes API. The machine needs no forwarded
port. If it is still booting, the command waits for it. The exit code is that of ssh.

The host keys of machines are kept by the UID of the machine, so that a new machine of the same name
causes no warning.`,
		Example: `  keelson vm ssh web
  keelson vm ssh web -- df -h /`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return usage.Errorf("keelson vm ssh takes one NAME, the VirtualMachine, and a command after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			options, user, err := l.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			words := append(options, userAt(user, args[0]), "--")
			return run("ssh", append(words, args[1:]...))
		},
	}
	l.addFlags(cmd.Flags())
	return cmd
}

func newSCP(flags *target.Flags) *cobra.Command {
	l := login{Flags: flags}
	recursive := false
	cmd := &cobra.Command{
		Use:   "scp SOURCE... TARGET",
		Short: "Copy files to or from a machine",
		Long: `Copy files with the scp of this host, through the Kubernetes API. A file of a machine is NAME:PATH; all
such files are of one machine.`,
		Example: `  keelson vm scp site.tar web:/var/www/
  keelson vm scp -r web:/etc ./etc-of-web`,
		Args: func(_ *cobra.Command, args []string) error {
			_, err := remoteMachine(args)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := remoteMachine(args)
			if err != nil {
				return err
			}
			options, user, err := l.options(cmd.Context(), name)
			if err != nil {
				return err
			}
			if recursive {
				options = append(options, "-r")
			}
			options = append(options, "--")
			for _, arg := range args {
				if path, found := strings.CutPrefix(arg, name+":"); found {
					arg = userAt(user, name) + ":" + path
				}
				options = append(options, arg)
			}
			return run("scp", options)
		},
	}
	l.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories")
	return cmd
}

// remoteMachine returns the machine that arguments of scp name.
func remoteMachine(args []string) (string, error) {
	found := ""
	for _, arg := range args {
		name, _, remote := strings.Cut(arg, ":")
		switch {
		case !remote || name == "" || strings.Contains(name, "/"):
		case found != "" && found != name:
			return "", usage.Errorf("keelson vm scp copies from or to one machine, not %s and %s", found, name)
		default:
			found = name
		}
	}
	if found == "" || len(args) < 2 {
		return "", usage.Errorf("keelson vm scp takes files, one or more of them of a machine as NAME:PATH")
	}
	return found, nil
}

func userAt(user, name string) string {
	if user == "" {
		return name
	}
	return user + "@" + name
}

// options returns the options of ssh and scp for a machine, and the user to log in as; "" is the default of ssh.
func (l *login) options(ctx context.Context, name string) (options []string, user string, err error) {
	m, err := open(ctx, l.Flags)
	if err != nil {
		return nil, "", err
	}
	vm, err := m.Find(ctx, name)
	if err == nil {
		err = whyOff(vm)
	}
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	dir, err := sshkey.Dir()
	if err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("make the directory for host keys: %w", err)
	}
	// ssh expands % and ~, and passes the command to a shell.
	proxy := fmt.Sprintf("%s vm port-forward %s %d --stdio", usage.Quote(self), l.Words(name), l.port)
	options = []string{
		"-o", "ProxyCommand=" + strings.ReplaceAll(proxy, "%", "%%"),
		"-o", "HostKeyAlias=" + string(vm.UID),
		"-o", "UserKnownHostsFile=" + quoteOption(filepath.Join(dir, "known_hosts")),
		"-o", "StrictHostKeyChecking=accept-new",
	}
	switch _, err := os.Stat(filepath.Join(dir, sshkey.File)); {
	case l.identity != "":
		options = append(options, "-i", l.identity)
	case err == nil:
		options = append(options, "-o", "IdentityFile="+quoteOption(filepath.Join(dir, sshkey.File)))
		for _, usual := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} { // setting one disables the defaults
			options = append(options, "-o", "IdentityFile=~/.ssh/"+usual)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	if user = l.user; user == "" {
		user, err = m.usualUser(ctx, vm)
	}
	return options, user, err
}

// quoteOption quotes a path for an option of ssh, which expands % in it.
func quoteOption(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }

// usualUser returns the user of the image of a machine; "" if it is not known.
func (m *machines) usualUser(ctx context.Context, vm *v1alpha1.VirtualMachine) (string, error) {
	named := vm.Spec.Image
	switch {
	case named == nil || named.Name == v1alpha1.ImageTiny:
		return "root", nil
	case named.Name == "":
		return "", nil
	}
	var image v1alpha1.VirtualMachineImage
	err := m.Get(ctx, client.ObjectKey{Name: named.Name}, &image)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil // machines keep running without it, and not every user can read it
	}
	if err != nil {
		return "", fmt.Errorf("get the image %s: %w", named.Name, err)
	}
	return image.Spec.LoginUser, nil
}

// run replaces this process by a program.
func run(program string, args []string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("%s is not installed; on Debian and Ubuntu: apt-get install openssh-client", program)
	}
	return syscall.Exec(path, append([]string{program}, args...), os.Environ())
}
