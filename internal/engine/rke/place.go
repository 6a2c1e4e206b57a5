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

// The commands of rke, which are also the names of their process records.
const (
	commandUp     = "up"
	commandRemove = "remove"
)

// place is the record directory of a cluster. Observations depend only on these records, so a restarted manager observes the
// same state.
type place string

func (p place) path(name string) string { return filepath.Join(string(p), name) }
func (p place) processes() string       { return p.path("processes") }
func (p place) key() string             { return p.path("hash.key") }

// marker is an environment variable of every run for this cluster, which its child processes inherit.
func (p place) marker() string { return "KEELSON_RKE=" + string(p) }

// run is the last started run.
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

// applied is an applied configuration.
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

// last returns the last run and its outcome; nil if there was none.
func (p place) last() (*run, process.Status) {
	var last run
	if !p.read(runFile, &last) {
		return nil, process.Status{}
	}
	statuses, _ := process.Peek(p.processes()) // a record that is damaged counts as lost
	for _, status := range statuses {
		// The record belongs to an earlier run of the same command.
		if status.ID == last.Command && !status.StartedAt.Before(last.Began) {
			return &last, status
		}
	}
	return &last, process.Status{State: process.Lost}
}

// applied returns the last applied configuration; nil if there is none.
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

// keepApplied saves the configuration that the last run has applied, before the next run overwrites it.
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

// keptConfig returns the copy of the last configuration that was applied or attempted; nil if there is none.
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

// writeRun records a run before it starts. It keeps the configuration of up, which remove needs.
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

// noteTimeout records that the last run is stopped because of its timeout.
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

// write replaces a file durably: the record of a run must not be lost when its effects are not.
func (p place) write(name string, data []byte) error {
	if err := atomicfile.Write(p.path(name), data, atomicfile.Durable); err != nil {
		return fmt.Errorf("write the record of the run of rke: %w", err)
	}
	return nil
}

// exists reports whether there are any records of the cluster.
func (p place) exists() bool {
	_, err := os.Lstat(string(p))
	return err == nil
}
