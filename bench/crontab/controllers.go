package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/program"
)

// The contestants.
const (
	// floor: a client that has made the Jobs ready creates them from the second on, over all of its connections.
	floor = "floor"
	// keelson: `keelson manager` creates them for CronTabs.
	keelson = "CronTab"
	// cronJobShipped: Kubernetes creates them for CronJobs, with the flags that it has by default.
	cronJobShipped = "CronJob as shipped"
	// cronJob5 and cronJob50: the same without the throttle of its client, with 5 workers as by default, and with 50.
	cronJob5  = "CronJob, 5 workers"
	cronJob50 = "CronJob, 50 workers"
)

// everybody are the contestants in the order of tables.
var everybody = []string{floor, keelson, cronJob50, cronJob5, cronJobShipped}

// unthrottled takes the throttle away from a controller of Kubernetes.
var unthrottled = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// controller is a contestant that runs.
type controller struct {
	*program.Program
	manager *program.Manager // nil if it is not keelson
}

// start starts the controller of a contestant; the floor has none, and gives nil.
func (b *bench) start(ctx context.Context, contestant string) (*controller, error) {
	var c controller
	var err error
	switch contestant {
	case floor:
		return nil, nil
	case keelson:
		var flags []string
		if b.options.Threads > 0 {
			flags = append(flags, "--threads="+strconv.Itoa(b.options.Threads))
		}
		c.manager, err = program.StartManager(ctx, b.binary, b.cluster.Kubeconfig, filepath.Join(b.cluster.Dir, "manager.log"), "crontab", flags...)
		if err != nil {
			return nil, err
		}
		c.Program = c.manager.Program
	case cronJobShipped:
		c.Program, err = b.startKubernetes(ctx, "cronjob-controller")
	case cronJob5:
		c.Program, err = b.startKubernetes(ctx, "cronjob-controller", unthrottled...)
	case cronJob50:
		c.Program, err = b.startKubernetes(ctx, "cronjob-controller", append([]string{"--concurrent-cron-job-syncs=50"}, unthrottled...)...)
	default:
		err = fmt.Errorf("there is no contestant %q", contestant)
	}
	return &c, err
}

// startKubernetes starts kube-controller-manager with one controller. It needs no election, being alone.
func (b *bench) startKubernetes(ctx context.Context, name string, flags ...string) (*program.Program, error) {
	args := append([]string{
		"kube-controller-manager", "--kubeconfig=" + b.cluster.Kubeconfig, "--controllers=" + name,
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
	}, flags...)
	isReady := func(line string) bool {
		return strings.Contains(line, "Starting "+strings.TrimSuffix(name, "-controller")+" controller")
	}
	return program.Start(ctx, name, filepath.Join(b.cluster.Dir, name+".log"), b.kube, args, isReady)
}
