// Package sshd serves SSH to those whose key the seed names. Whoever gets in is root,
// whatever name he gives: the guest knows nobody else.
package sshd

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// Address is where the server listens: the port of SSH on all interfaces.
const Address = ":22"

// Config is what the server needs.
type Config struct {
	// AuthorizedKeys are lines of authorized_keys. Options in front of a key, such as
	// command=, are refused, because they cannot be kept.
	AuthorizedKeys []string
	// HostKeys are private keys as PEM. Without any, the one in KeyFile is used, or made.
	HostKeys []string
	KeyFile  string
	// Command returns a program that runs a line, or a shell for "".
	Command func(line string) *exec.Cmd
	// Start starts a program and returns how to wait for it.
	Start func(*exec.Cmd) (wait func() error, err error)
	// Printf tells a person what is wrong.
	Printf func(format string, args ...any)
}

// Server is a server that has its keys.
type Server struct {
	config Config
	ssh    ssh.Server
	// Fingerprints are those of the host keys, for a person to compare.
	Fingerprints []string
}

// New checks the keys. A line that is no key is reported and left out; without any
// good one there is nothing to serve, which is an error.
func New(config Config) (*Server, error) {
	allowed := parseKeys(config.AuthorizedKeys, config.Printf)
	if len(allowed) == 0 {
		return nil, errors.New("the seed names no SSH key")
	}
	s := &Server{config: config}
	s.ssh = ssh.Server{
		Version: version,
		Handler: s.session,
		PublicKeyHandler: func(_ ssh.Context, key ssh.PublicKey) bool {
			return isAllowed(allowed, key)
		},
		// What a user may do as root anyway.
		LocalPortForwardingCallback: func(ssh.Context, string, uint32) bool { return true },
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session":      serveSession,
			"direct-tcpip": ssh.DirectTCPIPHandler,
		},
		SubsystemHandlers: map[string]ssh.SubsystemHandler{"sftp": s.transferFiles},
	}
	if err := s.addHostKeys(); err != nil {
		return nil, err
	}
	return s, nil
}

func parseKeys(lines []string, printf func(string, ...any)) []ssh.PublicKey {
	var keys []ssh.PublicKey
	for _, line := range lines {
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		switch {
		case err != nil:
			printf("This is no SSH key: %.40q", line)
		case len(options) != 0:
			printf("An SSH key with options (%.40q) is not accepted: they cannot be kept here", options)
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

func isAllowed(allowed []ssh.PublicKey, key ssh.PublicKey) bool {
	return slices.ContainsFunc(allowed, func(candidate ssh.PublicKey) bool { return ssh.KeysEqual(candidate, key) })
}

func (s *Server) addHostKeys() error {
	for _, text := range s.config.HostKeys {
		signer, err := gossh.ParsePrivateKey([]byte(text))
		if err != nil {
			s.config.Printf("A host key of the seed cannot be used: %v", err)
			continue
		}
		s.addHostKey(signer)
	}
	if len(s.Fingerprints) != 0 {
		return nil
	}
	if text, err := os.ReadFile(s.config.KeyFile); err == nil {
		if signer, err := gossh.ParsePrivateKey(text); err == nil {
			s.addHostKey(signer)
			return nil
		}
	}
	return s.newHostKey()
}

// newHostKey makes a host key and writes it to KeyFile.
func (s *Server) newHostKey() error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		return err
	}
	s.addHostKey(signer)
	block, err := gossh.MarshalPrivateKey(private, "")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.config.KeyFile), 0o755)
	}
	if err == nil {
		err = os.WriteFile(s.config.KeyFile, pem.EncodeToMemory(block), 0o600)
	}
	if err != nil {
		s.config.Printf("The host key does not outlast this boot: %v", err)
	}
	return nil
}

func (s *Server) addHostKey(signer gossh.Signer) {
	s.ssh.AddHostKey(signer)
	s.Fingerprints = append(s.Fingerprints, gossh.FingerprintSHA256(signer.PublicKey()))
}

// Serve accepts connections until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		_ = listener.Close() // the server may not have it yet
		_ = s.ssh.Close()
	})
	defer stop()
	if err := s.ssh.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serving SSH: %w", err)
	}
	return nil
}

// transferFiles serves SFTP, which scp also uses.
func (s *Server) transferFiles(session ssh.Session) {
	exit(session, s.runPlain(session, s.config.Command("exec sftp-server")))
}

// session runs what the client asks for.
func (s *Server) session(session ssh.Session) {
	cmd := s.config.Command(session.RawCommand())
	cmd.Env = append(cmd.Env, session.Environ()...)
	run := s.runPlain
	if _, _, wanted := session.Pty(); wanted {
		run = s.runOnTerminal
	}
	exit(session, run(session, cmd))
}

// exit ends a session with the exit status of its program.
func exit(session ssh.Session, err error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		_ = session.Exit(0) // the client may have gone, which is his right
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		_ = session.Exit(exit.ExitCode())
	case isPipeBroken(exit):
		_ = session.Exit(128 + int(syscall.SIGPIPE)) // as usual: whoever read its output has ended first
	default:
		_, _ = fmt.Fprintf(session.Stderr(), "%v\n", err)
		_ = session.Exit(255)
	}
}

// isPipeBroken reports whether a program was ended by SIGPIPE.
func isPipeBroken(exit *exec.ExitError) bool {
	if exit == nil {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGPIPE
}
