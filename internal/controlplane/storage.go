package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// defaultQuota is the quota of etcd's database in bytes: the maximum that etcd's documentation recommends.
	defaultQuota = 8 << 30
	// defaultStorageInterval is the interval of checks of etcd's database.
	defaultStorageInterval = time.Minute
	// historyLength is the number of checks that are kept: five minutes with the default interval, as long as
	// kube-apiserver keeps the history of objects.
	historyLength = 6
	// idleWrites is the maximum number of writes a second at which etcd counts as idle. The leases of a hundred nodes are
	// ten.
	idleWrites = 10
	// etcdctlTimeout limits a command of etcdctl. A defragmentation rewrites the database.
	etcdctlTimeout = 10 * time.Minute
)

// The alarms of etcd.
const (
	alarmNoSpace = "NOSPACE"
	alarmCorrupt = "CORRUPT"
)

// storage is the state of etcd's database.
type storage struct {
	at        time.Time
	quota     int64 // in bytes
	size      int64 // of the file
	used      int64 // size after a defragmentation
	revision  int64 // grows by one with each write
	compacted int64 // earlier revisions are gone
	alarm     string
}

// upkeep is the maintenance to perform.
type upkeep struct {
	compact    int64 // to this revision; 0 means not at all
	defragment bool
	disarm     bool // clear the alarm
}

// planUpkeep returns the maintenance for the last checks, oldest first.
//
// Without an alarm it compacts only what kube-apiserver would have compacted, and defragments, which blocks etcd for seconds,
// only when etcd is idle, more than half of the quota is taken, and more than half of the file is free. With the alarm NOSPACE
// etcd accepts no writes anyway: it compacts all history, defragments, and clears the alarm if that freed space.
func planUpkeep(looks []storage) upkeep {
	now, oldest := looks[len(looks)-1], looks[0]
	switch {
	case now.alarm == alarmNoSpace && now.compacted < now.revision:
		return upkeep{compact: now.revision}
	case now.alarm == alarmNoSpace && now.used < now.quota/10*9:
		return upkeep{defragment: true, disarm: true}
	case now.alarm != "", len(looks) < historyLength, now.size <= now.quota/2:
		return upkeep{}
	case float64(now.revision-oldest.revision) > idleWrites*now.at.Sub(oldest.at).Seconds():
		return upkeep{}
	case now.compacted < oldest.revision:
		return upkeep{compact: oldest.revision}
	}
	return upkeep{defragment: now.used < now.size/2}
}

// maintainStorage keeps etcd's database below its quota, and records its alarms, until the context ends.
func (cp *ControlPlane) maintainStorage(ctx context.Context) {
	interval := cp.opts.StorageInterval
	if interval == 0 {
		interval = defaultStorageInterval
	}
	var looks []storage
	for next := time.Duration(0); pause(ctx, next); {
		next = interval
		now, err := readStorage(ctx, cp.dir)
		if err != nil {
			looks = nil // etcd is restarting or busy
			continue
		}
		cp.recordAlarm(now.alarm)
		looks = append(looks[max(0, len(looks)-historyLength+1):], now)
		plan := planUpkeep(looks)
		err = cp.keepUp(ctx, plan)
		switch {
		case err != nil && ctx.Err() == nil:
			cp.opts.Log.Error(err, "Failed to free space in etcd, will retry", "interval", interval)
		case plan.compact != 0:
			next = min(interval, time.Second) // check how much was freed
		case plan != (upkeep{}):
			looks = nil
		}
	}
}

// keepUp performs the planned maintenance.
func (cp *ControlPlane) keepUp(ctx context.Context, plan upkeep) error {
	if plan.compact != 0 {
		if err := cp.etcdctl(ctx, "compaction", "--physical", fmt.Sprint(plan.compact)); err != nil {
			return err
		}
	}
	if plan.defragment {
		began := time.Now()
		if err := cp.etcdctl(ctx, "defrag"); err != nil {
			return err
		}
		cp.opts.Log.Info("Defragmented etcd", "took", time.Since(began).String())
	}
	if plan.disarm {
		if err := cp.etcdctl(ctx, "alarm", "disarm"); err != nil {
			return err
		}
		cp.recordAlarm("")
	}
	return nil
}

// recordAlarm records the alarm of etcd; empty means none.
func (cp *ControlPlane) recordAlarm(alarm string) {
	cp.mu.Lock()
	changed := cp.alarm != alarm
	cp.alarm = alarm
	cp.mu.Unlock()
	if !changed {
		return
	}
	if alarm == "" {
		cp.opts.Log.Info("etcd has no alarm any more")
	} else {
		cp.opts.Log.Info("etcd has raised an alarm", "alarm", alarm, "help", describeAlarm(alarm))
	}
	cp.opts.Changed()
}

// describeAlarm explains an alarm of etcd and its remedy.
func describeAlarm(alarm string) string {
	switch alarm {
	case "":
		return ""
	case alarmNoSpace:
		return "NOSPACE: the database of etcd has reached its quota, and the API accepts deletions only. " +
			"Delete objects that are not needed; the alarm is then cleared within minutes"
	case alarmCorrupt:
		return "CORRUPT: etcd has found its database damaged. Stop everything and restore a backup"
	default:
		return alarm + ": see the log of etcd"
	}
}

// etcdctl runs a command of etcd's client on the etcd of this control plane.
func (cp *ControlPlane) etcdctl(ctx context.Context, args ...string) error {
	return etcdctl(ctx, cp.opts.Binary, cp.dir, args...)
}

func etcdctl(ctx context.Context, binary string, dir layout, args ...string) error {
	args = slices.Concat([]string{"etcdctl", "--endpoints=unix://" + etcdSocket, "--command-timeout=" + etcdctlTimeout.String()}, args)
	return runTool(ctx, binary, dir.sockets(), args...)
}

// runTool runs keelson-kube until it ends. The error includes the end of its output.
func runTool(ctx context.Context, binary, workDir string, args ...string) error {
	return runToolWith(ctx, binary, workDir, nil, args...)
}

// runToolWith runs keelson-kube with a standard input; nil means none.
func runToolWith(ctx context.Context, binary, workDir string, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = workDir, componentEnv(os.Environ())
	cmd.Stdin = in
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(binary), strings.Join(args, " "), err, indent(words.String()))
	}
	return nil
}

// readStorage reads the state of the database of a data directory's etcd.
func readStorage(ctx context.Context, dir layout) (storage, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now := storage{at: time.Now()}
	var err error
	if now.alarm, err = readAlarm(ctx, dir); err != nil {
		return now, err
	}
	response, err := askEtcd(ctx, dir, "/metrics")
	if err != nil {
		return now, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return now, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	for name, target := range map[string]*int64{
		"etcd_server_quota_backend_bytes":         &now.quota,
		"etcd_mvcc_db_total_size_in_bytes":        &now.size,
		"etcd_mvcc_db_total_size_in_use_in_bytes": &now.used,
		"etcd_debugging_mvcc_current_revision":    &now.revision,
		"etcd_debugging_mvcc_compact_revision":    &now.compacted,
	} {
		if *target, err = gauge(families, name); err != nil {
			return now, err
		}
	}
	return now, nil
}

func gauge(families map[string]*dto.MetricFamily, name string) (int64, error) {
	metrics := families[name].GetMetric()
	if len(metrics) != 1 || metrics[0].GetGauge() == nil {
		return 0, fmt.Errorf("etcd has no metric %s", name)
	}
	return int64(metrics[0].GetGauge().GetValue()), nil
}

// readAlarm returns the alarm of the etcd of a data directory; empty if there is none.
func readAlarm(ctx context.Context, dir layout) (string, error) {
	response, err := askEtcd(ctx, dir, "/health?serializable=true")
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	var health struct{ Reason string }
	if err := json.NewDecoder(response.Body).Decode(&health); err != nil {
		return "", fmt.Errorf("read the health of etcd: %w", err)
	}
	alarm, _ := strings.CutPrefix(health.Reason, "ALARM ")
	if alarm == health.Reason {
		alarm = "" // it has another cause, or none
	}
	return alarm, nil
}

// askEtcd sends a request to the etcd of a data directory, on its client socket.
func askEtcd(ctx context.Context, dir layout, path string) (*http.Response, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket := filepath.Join(dir.sockets(), etcdSocket)
		if len(socket) > 100 { // the path of a unix socket must fit into 108 bytes
			folder, err := os.Open(dir.sockets())
			if err != nil {
				return nil, err
			}
			defer func() { _ = folder.Close() }() // opened only for its path
			socket = fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), etcdSocket)
		}
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}
