package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// Options are those of Serve.
type Options struct {
	// Directory is the state directory of the switch, mode 0700. Nobody else may use it.
	Directory string
	// Log gets a line for what the manager cannot be told.
	Log io.Writer
}

const (
	lockFile = "lock"

	// settleTime is when most of what is needed only once has been done. After that, unused pages are given back every
	// shedTime.
	settleTime = 3 * time.Second
	shedTime   = 5 * time.Minute
)

// WriteConfig stores a configuration for the next start of the switch with this directory, which it makes if necessary. A
// switch that runs does not look at it: use Client.Apply.
func WriteConfig(directory string, config Config) error {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	return storeConfig(directory, config)
}

func storeConfig(directory string, config Config) error {
	return atomicfile.WriteJSON(filepath.Join(directory, configFile), config, atomicfile.Volatile)
}

// readConfig returns the stored configuration.
func readConfig(directory string) (Config, error) {
	var config Config
	data, err := os.ReadFile(filepath.Join(directory, configFile))
	if err != nil {
		return config, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return Config{}, fmt.Errorf("read %s: %w", filepath.Join(directory, configFile), err)
	}
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("read %s: %w", filepath.Join(directory, configFile), err)
	}
	return config, nil
}

// Serve is the switch: it serves the network that is configured in its directory until the context ends. It fails if the
// configuration cannot be read, or another process serves the directory.
func Serve(ctx context.Context, options Options) error {
	unlock, err := lock(options.Directory)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := readConfig(options.Directory)
	if err != nil {
		return err
	}
	s, err := newSwitch(ctx, config)
	if err != nil {
		return err
	}
	defer s.stack.Close()
	return s.serve(ctx, options, config)
}

// serve applies the configuration and answers at the control socket until the context ends.
func (s *netswitch) serve(ctx context.Context, options Options, config Config) error {
	path := SocketPath(options.Directory)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := s.apply(config); err != nil {
		return err
	}
	c := &control{s: s, store: func(config Config) error { return storeConfig(options.Directory, config) }}
	server := &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: requestTimeout,
		IdleTimeout:       time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	go keepSmall(ctx, options.Log)
	fmt.Fprintf(options.Log, "serving network %s, %s\n", config.Namespace, config.Prefix)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// keepSmall gives back unused pages of the program until the context ends.
func keepSmall(ctx context.Context, log io.Writer) {
	wait := settleTime
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := dropProgram(); err != nil {
			fmt.Fprintf(log, "%v\n", err)
			return
		}
		wait = shedTime
	}
}

// lock takes the directory for this process, until it ends.
func lock(directory string) (func(), error) {
	path := filepath.Join(directory, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: another process serves this network: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
