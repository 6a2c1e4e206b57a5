package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	// defaultQuota is how large etcd's database may become, in bytes: the most that etcd's authors recommend.
	defaultQuota = 8 << 30
	// defaultStorageInterval is how often etcd is asked for the size of its database.
	defaultStorageInterval = time.Minute
	// historyLength is how many answers are kept: with the default interval the last five minutes. kube-apiserver keeps
	// the history of objects for as long.
	historyLength = 6
	// idleWrites is how many writes a second etcd has at most while it counts as idle. The leases of a hundred nodes are ten.
	idleWrites = 10
	// etcdctlTimeout is for a command of etcdctl. A defragmentation rewrites the database.
	etcdctlTimeout = 10 * time.Minute
)

// The alarms of etcd.
const (
	alarmNoSpace = "NOSPACE"
	alarmCorrupt = "CORRUPT"
)

// storage is what etcd tells about its database.
type storage struct {
	at        time.Time
	quota     int64 // how large it may become, in bytes
	size      int64 // of the file
	used      int64 // what a defragmentation leaves of it
	revision  int64 // grows by one with each write
	compacted int64 // the history before this revision is gone
	alarm     string
}

// upkeep is what is to be done about the database.
type upkeep struct {
	compact    int64 // to this revision; 0 means not at all
	defragment bool
	disarm     bool // clear the alarm
}

// planUpkeep decides from the last answers of etcd, the oldest first.
//
// Without an alarm it compacts only what kube-apiserver would have compacted, and defragments, which blocks
// etcd for seconds, only when etcd is idle, more than half of the quota is taken, and more than half of the file is free.
// With the alarm NOSPACE nothing can be written, so blocking does no harm: it compacts all history and defragments, and if that frees
// space, it clears the alarm.
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

// keepRoom keeps etcd's database below its quota, and notes its alarms, until the context ends.
func (cp *ControlPlane) keepRoom(ctx context.Context) {
	interval := cp.opts.StorageInterval
	if interval == 0 {
		interval = defaultStorageInterval
	}
	var looks []storage
	for next := time.Duration(0); pause(ctx, next); {
		next = interval
		now, err := readStorage(ctx, cp.dir)
		if err != nil {
			looks = nil // etcd is being started again, or is busy
			continue
		}
		cp.noteAlarm(now.alarm)
		looks = append(looks[max(0, len(looks)-historyLength+1):], now)
		plan := planUpkeep(looks)
		err = cp.keepUp(ctx, plan)
		switch {
		case err != nil && ctx.Err() == nil:
			cp.opts.Log.Error(err, "Could not make room in etcd, trying again later", "interval", interval)
		case plan.compact != 0:
			next = min(interval, time.Second) // to see what that has freed
		case plan != (upkeep{}):
			looks = nil
		}
	}
}

// keepUp does what was planned.
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
		cp.noteAlarm("")
	}
	return nil
}

// noteAlarm notes the alarm of etcd; an empty one means that there is none.
func (cp *ControlPlane) noteAlarm(alarm string) {
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

// describeAlarm says what an alarm of etcd means and what to do about it.
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

// runTool runs keelson-kube until it ends. The error has the last words of it.
func runTool(ctx context.Context, binary, workDir string, args ...string) error {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = workDir, componentEnv(os.Environ())
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(binary), strings.Join(args, " "), err, indent(words.String()))
	}
	return nil
}

// readStorage asks the etcd of a data directory about its database.
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
		alarm = "" // it has another reason, or none
	}
	return alarm, nil
}

// askEtcd makes a request to the etcd of a data directory, on its client socket.
func askEtcd(ctx context.Context, dir layout, path string) (*http.Response, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket := filepath.Join(dir.sockets(), etcdSocket)
		if len(socket) > 100 { // the path of a unix socket must fit into 108 bytes
			folder, err := os.Open(dir.sockets())
			if err != nil {
				return nil, err
			}
			defer func() { _ = folder.Close() }() // it was only looked up
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
