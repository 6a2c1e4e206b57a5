package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// pollInterval is that of the control plane when it waits for /readyz.
	pollInterval = 20 * time.Millisecond
	floorTimeout = time.Minute
)

// model is a control plane of ours that the floor is made like.
type model struct {
	dir       string
	config    *rest.Config
	etcd      []string // command lines
	apiserver []string
}

// script starts etcd and kube-apiserver in dir as the model did.
func (m *model) script(dir string, atOnce bool) string {
	var text strings.Builder
	command := func(args []string, log string) {
		for _, arg := range args {
			text.WriteString(quote(strings.ReplaceAll(arg, m.dir, dir)) + " ")
		}
		fmt.Fprintf(&text, "> ../%s 2>&1 &\n", log)
	}
	fmt.Fprintf(&text, "#!/bin/sh\ncd %s/sockets || exit 1\n", quote(dir))
	command(m.etcd, "etcd.log")
	if !atOnce {
		// What follows would fail its first attempt and make a pause of a second.
		text.WriteString("while [ ! -S etcd:0 ]; do sleep 0.005; done\n")
	}
	command(m.apiserver, "kube-apiserver.log")
	text.WriteString("wait\n")
	return text.String()
}

func quote(arg string) string { return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'" }

// start measures from the start of the shell. The certificates are there before.
func (m *model) start(ctx context.Context, dir string, atOnce bool) (_ start, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "sockets"), 0o700); err != nil {
		return start{}, err
	}
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(m.dir, "pki"))); err != nil {
		return start{}, err
	}
	path := filepath.Join(dir, "start.sh")
	if err := os.WriteFile(path, []byte(m.script(dir, atOnce)), 0o700); err != nil {
		return start{}, err
	}
	client, err := rest.HTTPClientFor(m.config)
	if err != nil {
		return start{}, err
	}
	client.Timeout = 5 * time.Second
	defer client.CloseIdleConnections()

	cmd := exec.Command("/bin/sh", path)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return start{}, err
	}
	defer func() { err = errors.Join(err, end(cmd.Process.Pid), cmd.Wait()) }()
	if err := awaitReady(ctx, client, m.config.Host+"/readyz"); err != nil {
		return start{}, fmt.Errorf("%w; the end of its log is\n%s", err, tail(filepath.Join(dir, "kube-apiserver.log")))
	}
	return start{Ready: time.Since(began)}, nil
}

// end stops what a script has started, and returns when all of it is gone, so that the next start has the port and the
// machine for itself. The script ends with its children.
func end(shell int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	if err != nil {
		return err
	}
	for _, text := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

func awaitReady(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, floorTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := get(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver of the script was not ready: %w", err)
		case <-ticker.C:
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// tail returns the last kilobytes of a file, or nothing.
func tail(path string) string {
	data, _ := os.ReadFile(path)
	return string(data[max(0, len(data)-4<<10):])
}
