package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/process"
)

// Report describes a data directory and its processes.
type Report struct {
	Dir            string            `json:"dir"`
	Exists         bool              `json:"exists"`               // whether a control plane was ever started there
	ManagerPID     int               `json:"managerPID,omitempty"` // the program that supervises it, 0 if none
	Server         string            `json:"server,omitempty"`     // URL of the API
	Kubeconfig     string            `json:"kubeconfig,omitempty"` // path of the administrator's kubeconfig
	Ephemeral      bool              `json:"ephemeral"`
	Nodes          int               `json:"nodes"`                    // simulated nodes
	RealNodes      int               `json:"realNodes,omitempty"`      // their number, if any of them runs
	NodeIndexes    []int             `json:"nodeIndexes,omitempty"`    // of the real nodes, if any of them runs
	SimulatedNodes bool              `json:"simulatedNodes,omitempty"` // whether kwok runs
	Components     []ComponentReport `json:"components,omitempty"`
	APIReady       bool              `json:"apiReady"`            // whether /readyz returns ok
	APIError       string            `json:"apiError,omitempty"`  // why not
	EtcdAlarm      string            `json:"etcdAlarm,omitempty"` // the alarm of etcd and its remedy, if there is one
}

// ComponentReport is the state of one component.
type ComponentReport struct {
	Name      string    `json:"name"`
	State     string    `json:"state"` // Running, Exited, Lost, Starting
	PID       int       `json:"pid,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	Ended     string    `json:"ended,omitempty"` // how it ended, if it has
	Log       string    `json:"log"`
}

// Running reports whether any component runs.
func (r Report) Running() bool {
	for _, c := range r.Components {
		if c.State == string(process.Running) {
			return true
		}
	}
	return false
}

// RunningNodes returns the indexes of the real nodes that run.
func (r Report) RunningNodes() (indexes []int) {
	for _, c := range r.Components {
		if index := slices.Index(nodeNames, c.Name); index >= 0 && c.State == string(process.Running) {
			indexes = append(indexes, index)
		}
	}
	return indexes
}

// NodePID returns the process ID of a real node of a data directory, 0 if it does not run.
func NodePID(path string, index int) (int, error) {
	components, err := inspectComponents(layout(path))
	if err != nil {
		return 0, err
	}
	for _, c := range components {
		if c.Name == nodeNames[index] && c.State == string(process.Running) {
			return c.PID, nil
		}
	}
	return 0, nil
}

// Inspect reports on a data directory without changing it.
func Inspect(ctx context.Context, path string) (Report, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Report{}, err
	}
	dir := layout(abs)
	report := Report{Dir: abs}
	if _, err := os.Stat(dir.stateFile()); errors.Is(err, fs.ErrNotExist) {
		return report, nil
	}
	s, err := loadState(dir)
	if err != nil {
		return report, err
	}
	report.Exists = true
	report.Server, report.Kubeconfig = s.server(), dir.kubeconfig()
	report.Ephemeral, report.Nodes = s.Ephemeral, s.Nodes
	if report.ManagerPID, err = process.Holder(dir.processes()); err != nil {
		return report, err
	}
	if report.Components, err = inspectComponents(dir); err != nil {
		return report, err
	}
	for _, c := range report.Components {
		running := c.State == string(process.Running)
		report.SimulatedNodes = report.SimulatedNodes || running && c.Name == nameKwok
	}
	if len(report.RunningNodes()) > 0 {
		if report.NodeIndexes, err = readNodeSet(dir); err != nil {
			return report, err
		}
		report.RealNodes = len(report.NodeIndexes)
	}
	if report.Running() {
		err := readyz(ctx, clientConfig(dir, s.server(), s.Rotation.Generation))
		report.APIReady = err == nil
		if err != nil {
			report.APIError = err.Error()
		}
		if alarm, err := readAlarm(ctx, dir); err == nil { // otherwise etcd does not run, which the report shows elsewhere
			report.EtcdAlarm = describeAlarm(alarm)
		}
	}
	return report, nil
}

// IsRunning reports whether any component of a data directory runs. It asks no API.
func IsRunning(path string) (bool, error) {
	components, err := inspectComponents(layout(path))
	return Report{Components: components}.Running(), err
}

// AdminConfig returns the client configuration of the administrator of a data directory. It refers to files, whose
// certificates are renewed.
func AdminConfig(path string) (*rest.Config, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s, err := loadState(layout(abs))
	if err != nil {
		return nil, err
	}
	return clientConfig(layout(abs), s.server(), s.Rotation.Generation), nil
}

func inspectComponents(dir layout) ([]ComponentReport, error) {
	statuses, err := process.Peek(dir.processes())
	if err != nil {
		return nil, err
	}
	byName := map[string]process.Status{}
	for _, s := range statuses {
		byName[s.ID] = s
	}
	var reports []ComponentReport
	for _, name := range componentNames {
		s, ok := byName[name]
		if !ok {
			continue
		}
		r := ComponentReport{Name: name, State: string(s.State), PID: s.PID, StartedAt: s.StartedAt, Log: dir.log(name)}
		if s.State != process.Running {
			r.Ended = describeEnd(s)
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// StopAll stops every component of a data directory that no program supervises, and reports whether there was any.
// The error is a *process.LockedError if a program supervises it: stop that program instead.
func StopAll(ctx context.Context, path string) (stopped bool, err error) {
	report, err := Inspect(ctx, path)
	if err != nil || !report.Exists {
		return false, err
	}
	procs, err := process.Open(layout(report.Dir).processes())
	if err != nil {
		return false, err
	}
	if err := stopComponents(ctx, layout(report.Dir), procs); err != nil {
		return false, errors.Join(fmt.Errorf("stop the control plane in %s: %w", report.Dir, err), procs.Close())
	}
	return report.Running(), procs.Close()
}
