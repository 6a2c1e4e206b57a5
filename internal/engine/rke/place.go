package rke

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/process"
)

// The commands of rke, which are also the names of their records.
const (
	commandUp     = "up"
	commandRemove = "remove"
)

// place is the directory of one cluster. It is read without asking the engine, so that a manager that was started again
// sees the same.
type place string

func (p place) path(name string) string { return filepath.Join(string(p), name) }
func (p place) processes() string       { return p.path("processes") }
func (p place) key() string             { return p.path("hash.key") }

// marker is in the environment of every run for this cluster and of what it starts.
func (p place) marker() string { return "KEELSON_RKE=" + string(p) }

// run is the last run that was started.
type run struct {
	Command string    `json:"command"`
	Cluster string    `json:"cluster"`           // the name, for people
	Config  string    `json:"config"`            // path of the configuration
	Hash    string    `json:"hash,omitempty"`    // stands for the configuration of up
	Masked  string    `json:"masked,omitempty"`  // the configuration of up without credentials
	Began   time.Time `json:"began"`             // a moment before
	Limit   string    `json:"limit,omitempty"`   // set when it was ended after that time
	PutBack bool      `json:"putBack,omitempty"` // the configuration was put back for remove
}

// applied is a configuration that was applied.
type applied struct {
	Hash   string `json:"hash"`
	Masked string `json:"masked"`
}

const (
	runFile     = "run.json"     // the last run
	runConfig   = "run.yml"      // the configuration that up was started with last
	appliedFile = "applied.json" // what was applied by a run before the last
	appliedCopy = "applied.yml"  // and its configuration
)

// last returns the last run and how it is; nil if there was none.
func (p place) last() (*run, process.Status) {
	var last run
	if !p.read(runFile, &last) {
		return nil, process.Status{}
	}
	statuses, _ := process.Peek(p.processes()) // a record that is damaged counts as lost
	for _, status := range statuses {
		// An earlier run of the same command began before this one.
		if status.ID == last.Command && !status.StartedAt.Before(last.Began) {
			return &last, status
		}
	}
	return &last, process.Status{State: process.Lost}
}

// applied returns what was applied last; nil if nothing was.
func (p place) applied() *applied {
	if last, status := p.last(); last != nil && last.Command == commandUp && outcomeOf(*last, status).ok {
		return &applied{Hash: last.Hash, Masked: last.Masked}
	}
	var was applied
	if !p.read(appliedFile, &was) {
		return nil
	}
	return &was
}

// keepApplied puts what the last run has applied aside, before the next run takes its place.
func (p place) keepApplied() error {
	last, status := p.last()
	if last == nil || last.Command != commandUp || !outcomeOf(*last, status).ok {
		return nil
	}
	config, err := os.ReadFile(p.path(runConfig))
	if err == nil {
		err = p.write(appliedCopy, config)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := json.Marshal(applied{Hash: last.Hash, Masked: last.Masked})
	if err != nil {
		return err
	}
	return p.write(appliedFile, data)
}

// keptConfig returns the copy of the configuration that was applied last, or at least tried; nil if there is none.
func (p place) keptConfig() []byte {
	names := []string{appliedCopy, runConfig}
	if last, status := p.last(); last != nil && last.Command == commandUp && outcomeOf(*last, status).ok {
		names = []string{runConfig, appliedCopy}
	}
	for _, name := range names {
		if data, err := os.ReadFile(p.path(name)); err == nil && len(data) > 0 {
			return data
		}
	}
	return nil
}

// writeRun notes a run before it starts. The configuration of up is kept, because remove needs it.
func (p place) writeRun(next run, config []byte) error {
	if next.Command == commandUp {
		if err := p.write(runConfig, config); err != nil {
			return err
		}
	} else if err := p.keepApplied(); err != nil {
		return err
	}
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return p.write(runFile, data)
}

// noteTimeout notes why the last run is about to be ended.
func (p place) noteTimeout(limit time.Duration) {
	var last run
	if !p.read(runFile, &last) {
		return
	}
	last.Limit = limit.String()
	if data, err := json.Marshal(last); err == nil {
		_ = p.write(runFile, data) // else only the log has the reason
	}
}

func (p place) read(name string, into any) bool {
	data, err := os.ReadFile(p.path(name))
	return err == nil && json.Unmarshal(data, into) == nil
}

// write replaces a file durably: what the records say of a run must still be there when its effects are.
func (p place) write(name string, data []byte) error {
	if err := atomicfile.Write(p.path(name), data, atomicfile.Durable); err != nil {
		return fmt.Errorf("keep what rke is run with: %w", err)
	}
	return nil
}

// exists tells whether there is anything of the cluster in its place.
func (p place) exists() bool {
	_, err := os.Lstat(string(p))
	return err == nil
}
