package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// The contestants.
const (
	keelsonAPI = "keelson, etcd and API"
	keelsonAll = "keelson, everything"
	floorTurns = "floor: script, one after the other"
	floorOnce  = "floor: script, both at once"
)

var contestants = []string{keelsonAPI, keelsonAll, floorTurns, floorOnce}

// start is what one start took.
type start struct {
	Ready   time.Duration `json:"readyNanoseconds"`             // until /readyz says ok
	Settled time.Duration `json:"settledNanoseconds,omitempty"` // until pods can run, where there is more than the API
}

// start starts one contestant in an empty directory, and stops it.
func (r *results) start(ctx context.Context, contestant, dir, binary string, model *floor.Model) (start, error) {
	switch contestant {
	case floorTurns:
		return startFloor(ctx, model, dir, floor.Script{})
	case floorOnce:
		return startFloor(ctx, model, dir, floor.Script{AtOnce: true})
	case keelsonAPI:
		return startKeelson(ctx, controlplane.Options{Dir: dir, Binary: binary, APIOnly: true})
	case keelsonAll:
		return startKeelson(ctx, controlplane.Options{Dir: dir, Binary: binary, Nodes: 1})
	}
	return start{}, fmt.Errorf("there is no contestant %q", contestant)
}

// startFloor measures from the start of the shell. The certificates are there before.
func startFloor(ctx context.Context, model *floor.Model, dir string, script floor.Script) (_ start, err error) {
	f, err := model.Prepare(dir, script)
	if err != nil {
		return start{}, err
	}
	began := time.Now()
	if err := f.Start(); err != nil {
		return start{}, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := f.AwaitReady(ctx); err != nil {
		return start{}, err
	}
	return start{Ready: time.Since(began)}, nil
}

// startKeelson measures from the call, with a directory in which there is nothing, not even a certificate.
func startKeelson(ctx context.Context, opts controlplane.Options) (_ start, err error) {
	began := time.Now()
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		return start{}, err
	}
	s := start{Ready: time.Since(began)}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if opts.APIOnly {
		return s, nil
	}
	err = cp.Settle(ctx)
	s.Settled = time.Since(began)
	return s, err
}
