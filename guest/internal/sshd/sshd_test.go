package sshd

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// long is much longer than anything here takes, also on a busy host.
const long = 2 * time.Minute

// fixture is a server, and a client that is connected to it.
type fixture struct {
	*gossh.Client
	// ended gets what each program has ended with.
	ended chan error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{ended: make(chan error, 1)}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // programs do not ignore it, even if nohup has started the tests
	server, err := New(Config{
		AuthorizedKeys: []string{string(gossh.MarshalAuthorizedKey(signer.PublicKey()))},
		KeyFile:        filepath.Join(t.TempDir(), "host_key"),
		Command:        func(line string) *exec.Cmd { return exec.Command("sh", "-c", line) },
		Start: func(cmd *exec.Cmd) (func() error, error) {
			err := cmd.Start()
			return func() error {
				err := cmd.Wait()
				f.ended <- err
				return err
			}, err
		},
		Printf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(t.Context(), listener) }() // until the test ends
	f.Client, err = gossh.Dial("tcp", listener.Addr().String(), &gossh.ClientConfig{
		User: "root", Auth: []gossh.AuthMethod{gossh.PublicKeys(signer)}, HostKeyCallback: gossh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// start runs a program, on a terminal or not, and returns its session and its input when it has printed a line.
func (f *fixture) start(t *testing.T, program string, terminal bool) (*gossh.Session, io.Writer) {
	t.Helper()
	session, err := f.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if terminal {
		if err := session.RequestPty("vt100", 24, 80, nil); err != nil {
			t.Fatal(err)
		}
	}
	input, err := session.StdinPipe() // it stays open
	if err != nil {
		t.Fatal(err)
	}
	output, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(program); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || strings.TrimSpace(line) != "y" {
		t.Fatalf("it printed %q, %v", line, err)
	}
	go func() { // as a client does that has nowhere to put it
		block := make([]byte, 32<<10)
		for {
			if _, err := output.Read(block); err != nil {
				return
			}
		}
	}()
	return session, input
}

// A program ends when its client takes no more output, or has gone, although the connection and the input stay open.
func TestClientThatLeaves(t *testing.T) {
	noOutput := func(s *gossh.Session) error { _, err := s.SendRequest(endOfWrite, false, nil); return err }
	closes := func(s *gossh.Session) error { return s.Close() }
	for _, test := range []struct {
		name, program string
		leave         func(*gossh.Session) error
	}{
		{"it takes no more output", "yes", noOutput},
		{"it closes its channel", "yes", closes},
		{"it closes the channel of a silent program", "echo y; exec sleep 1000", closes},
	} {
		for _, terminal := range []bool{false, true} {
			f := newFixture(t)
			session, _ := f.start(t, test.program, terminal)
			if err := test.leave(session); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-f.ended:
				if err == nil {
					t.Errorf("%s, terminal %v: it has succeeded, want a signal", test.name, terminal)
				}
			case <-time.After(long):
				t.Fatalf("%s, terminal %v: the program runs on", test.name, terminal)
			}
		}
	}
}

// A program that succeeds does so whether its output is taken or not.
func TestStatusWithoutOutput(t *testing.T) {
	session, input := newFixture(t).start(t, "echo y; read go; echo more || :", false)
	if _, err := session.SendRequest(endOfWrite, true, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		t.Fatal(err)
	}
	if err := session.Wait(); err != nil {
		t.Errorf("got %v", err)
	}
}

// A program that writes to a client that takes no more output ends without a message.
func TestNoMessageWithoutOutput(t *testing.T) {
	session, err := newFixture(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	session.Stderr = &messages
	err = session.Run("kill -PIPE $$")
	if exit := (*gossh.ExitError)(nil); !errors.As(err, &exit) || exit.ExitStatus() != 141 || messages.Len() > 0 {
		t.Errorf("got %v, and the message %q", err, messages.String())
	}
}

// Clients of OpenSSH say that they take no more output only to a server of that name.
func TestVersion(t *testing.T) {
	if got := string(newFixture(t).ServerVersion()); !strings.HasPrefix(got, "SSH-2.0-OpenSSH") {
		t.Errorf("the server is %s", got)
	}
}
