package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// startDetached starts this command once more in the background, and shows what it reports until all is ready.
func (o *options) startDetached(ctx context.Context, cmd *cobra.Command, dir string) error {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return err
	}
	if report.ManagerPID != 0 {
		return alreadyRunning(ctx, dir)
	}
	child, events, err := launch(dir)
	if err != nil {
		return fmt.Errorf("start keelson in the background: %w", err)
	}
	// Ctrl-C during the start stops what was started: the child has a session of its own and does not see it.
	unregister := context.AfterFunc(ctx, func() { _ = child.Signal(syscall.SIGTERM) })
	defer unregister()
	p := newPrinter(cmd.OutOrStdout())
	done, animated := make(chan struct{}), make(chan struct{})
	go func() { defer close(animated); p.animate(done) }()
	ready, err := relay(events, p)
	close(done)
	<-animated
	if ready {
		return child.Release()
	}
	state, waitErr := child.Wait()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted; what was started is stopped again")
	case waitErr != nil:
		return waitErr
	default:
		return fmt.Errorf("keelson ended before it was ready (%s); see %s", state, filepath.Join(dir, "logs"))
	}
}

// launch starts the background process. What it prints goes to a file, what it reports comes through events.
func launch(dir string) (*os.Process, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return nil, nil, err
	}
	out, err := os.OpenFile(filepath.Join(dir, "logs", "up.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return arg == "--detach" || strings.HasPrefix(arg, "--detach=")
	})
	cmd := exec.Command(self, append(args, "--report-fd=3")...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return cmd.Process, r, nil
}

// relay shows events until the text that ends a start (true), an error, or the end of the background process.
func relay(events io.Reader, r reporter) (ready bool, err error) {
	decoder := json.NewDecoder(events)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return false, nil // the process has ended without a word; the caller knows how
		}
		if e.Error != "" {
			return false, errors.New(e.Error)
		}
		r.report(e)
		if e.Text != "" {
			return true, nil
		}
	}
}

// mergeKubeconfig adds the context "keelson" to the user's own kubeconfig file. Their current context stays, unless
// they have none.
func mergeKubeconfig(path string) error {
	ours, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	access := clientcmd.NewDefaultPathOptions()
	theirs, err := access.GetStartingConfig()
	if err != nil {
		return fmt.Errorf("read your kubeconfig: %w", err)
	}
	const name = "keelson"
	theirs.Clusters[name] = only(ours.Clusters)
	theirs.AuthInfos[name] = only(ours.AuthInfos)
	theirs.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if theirs.CurrentContext == "" {
		theirs.CurrentContext = name
	}
	if err := clientcmd.ModifyConfig(access, *theirs, false); err != nil {
		return fmt.Errorf("add the context %s to your kubeconfig: %w", name, err)
	}
	return nil
}

// only returns the one value of a map.
func only[T any](m map[string]*T) *T {
	for _, v := range m {
		return v
	}
	return nil
}

// builtInKubectl returns the path of the kubectl beside this program if there is none in PATH, else "".
func builtInKubectl() string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return ""
	}
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(self), "kubectl")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
