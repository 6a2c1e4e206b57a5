package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/config/admission"
	"github.com/keelson-dev/keelson/internal/access"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/sshkey"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/install"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/systemd"
	"github.com/keelson-dev/keelson/internal/version"
)

// stopTimeout is the deadline for a clean stop of the control plane. Then the rest is killed.
const stopTimeout = 130 * time.Second

// runHere runs everything in this process until the context ends or there is a permanent failure.
// It calls ready once everything is running and the user was informed.
func (o *options) runHere(ctx context.Context, dir, binary string, r reporter, ready func()) error {
	logger, logErr := o.openLog(dir)
	images, imagesErr := o.nodeImages()
	if err := errors.Join(logErr, imagesErr); err != nil {
		return err
	}
	began := time.Now()
	ctx, handedOver := untilHandOver(ctx)
	o.warn(ctx, r, logger)
	if !o.noControllers {
		go func() { _, _ = definitions() }() // runManager gets the error
	}
	early := make(chan struct{})
	simulated, real := o.nodeCounts()
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Binary: binary, Ephemeral: o.instance.Ephemeral, Nodes: simulated, RealNode: o.machine, RealNodes: real, Images: images,
		Answering: func(ctx context.Context, config *rest.Config) {
			defer close(early)
			if o.noControllers {
				return
			}
			if all, err := definitions(); err == nil {
				install.Early(ctx, config, all)
			}
		},
		Log: logger, Progress: func(s controlplane.Step) { r.report(event{Step: s.Name, Done: s.Done, Took: s.Took}) },
	})
	if err != nil {
		if isLocked(err) {
			return alreadyRunning(ctx, dir)
		}
		if ctx.Err() != nil && o.reportFD == 0 { // in the background, the parent process reports this
			r.report(event{Note: "Stopped before it was ready."})
		}
		return o.cleanUp(dir, interrupted(ctx, err))
	}
	<-early
	if err := o.record(dir); err != nil {
		logger.Error(err, "Failed to record this process: the next `keelson up` cannot take over from it")
	}
	err = o.serve(ctx, cp, dir, r, logger, func(page *console.Console) {
		welcome := event{Text: o.welcome(cp.Server(), cp.Kubeconfig(), dir, time.Since(began))}
		if page != nil {
			welcome.Console = page.URL()
		}
		r.report(welcome)
		ready()
	})
	if handedOver() {
		return interrupted(ctx, err)
	}
	if o.keepRunning {
		r.report(event{Note: fmt.Sprintf("The API, machines and clusters keep running without controllers. `%s` stops them.", instance.Command("down", dir))})
		return interrupted(ctx, err)
	}
	r.report(event{Note: "Stopping ..."})
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err = errors.Join(interrupted(ctx, err), o.stopMachines(stopCtx, dir, r))
	_, stopErr := local.StopAll(stopCtx, manager.ClusterDir(dir))
	return o.cleanUp(dir, errors.Join(err, stopErr, cp.Stop(stopCtx)))
}

// stopMachines stops the machines, and reports those that could not be put to sleep.
func (o *options) stopMachines(ctx context.Context, dir string, r reporter) error {
	began := time.Now()
	err := instance.StopMachines(ctx, dir, o.instance.Ephemeral)
	for _, warning := range instance.DescribeUnsaved(dir, began) {
		r.report(event{Note: warning})
	}
	return err
}

// nodeCounts returns the numbers of simulated and of real nodes; one of them is 0.
func (o *options) nodeCounts() (simulated, real int) {
	if o.machine != nil {
		return 0, o.nodes
	}
	return o.nodes, 0
}

// openConsole binds the port of the console, and records how to open it; nil if there is none.
func (o *options) openConsole(ctx context.Context, dir string) (*console.Console, error) {
	if o.consolePort < 0 {
		return nil, nil
	}
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return nil, err
	}
	host := instance.HostName()
	page, err := console.Listen(ctx, console.Options{Config: config, Port: o.consolePort, Cluster: host, Host: host, Version: version.Get().Keelson, SSHKey: sshkey.Public})
	if err != nil {
		return nil, err
	}
	return page, page.Link().Save(dir)
}

// serve starts the controllers, the nodes and the console, informs the user, and runs until the context ends.
func (o *options) serve(ctx context.Context, cp *controlplane.ControlPlane, dir string, r reporter, logger logr.Logger, ready func(*console.Console)) error {
	page, err := o.openConsole(ctx, dir)
	if err != nil {
		return err
	}
	if host := cp.HostAddress(); host.IsValid() && o.manager.Machines.ServiceAddress == "" {
		o.manager.Machines.ServiceAddress = host.String()
	}
	group, ctx := errgroup.WithContext(ctx)
	managed, settled := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		return o.runManager(ctx, cp.Config(), dir, r, logger, func() { close(managed) })
	})
	if page != nil {
		group.Go(func() error { return page.Serve(ctx) })
	}
	group.Go(func() error {
		err := cp.Settle(ctx)
		if err == nil {
			close(settled)
		}
		return err
	})
	group.Go(func() error {
		for _, up := range []chan struct{}{managed, settled} {
			select {
			case <-up:
			case <-ctx.Done(): // also if another part has failed
				return nil
			}
		}
		if o.mergeKubeconfig {
			if err := mergeKubeconfig(cp.Kubeconfig(), cp.Config().TLSClientConfig); err != nil {
				return err
			}
		}
		ready(page)
		return nil
	})
	return group.Wait()
}

// definitions are the CRDs. Parsing them takes a moment, which runHere uses to start the control
// plane.
var definitions = sync.OnceValues(crds.All)

// runManager installs the CRDs and runs the controllers. It calls up once they run, or immediately
// if there are none.
func (o *options) runManager(ctx context.Context, config *rest.Config, stateDir string, r reporter, logger logr.Logger, up func()) error {
	if o.noControllers {
		if err := access.RemoveAbandoned(ctx, config); err != nil {
			return err
		}
		up()
		<-ctx.Done()
		return nil
	}
	installed := step(r, "definitions")
	definitions, err := definitions()
	if err != nil {
		return err
	}
	if err := install.CRDs(ctx, config, definitions); err != nil {
		return err
	}
	policies, err := admission.All()
	if err != nil {
		return err
	}
	if err := install.Policies(ctx, config, policies); err != nil {
		return err
	}
	installed()

	started := step(r, "controllers")
	mo := o.manager
	mo.Logger = logger
	mo.StateDir, mo.Ephemeral = stateDir, o.instance.Ephemeral
	mo.OnReady = func() {
		started()
		up()
	}
	return manager.Run(ctx, config, mo)
}

// warn tells the user what may go wrong.
func (o *options) warn(ctx context.Context, r reporter, logger logr.Logger) {
	for _, warning := range []string{systemd.Warning(ctx), o.shortage} {
		if warning != "" {
			logger.Info(warning)
			r.report(event{Note: warning + "."})
		}
	}
}

// openLog returns the logger of this process. It writes to a rotated file, because the terminal
// belongs to the user.
func (o *options) openLog(dir string) (logr.Logger, error) {
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return logr.Logger{}, err
	}
	file := &lumberjack.Logger{Filename: logFile(dir), MaxSize: 10, MaxBackups: 2} // in megabytes; mode 0600
	logger := o.manager.Logging.NewLogger(file)
	return logger, o.manager.Logging.InstallLogger(logger)
}

func logFile(dir string) string { return filepath.Join(dir, "logs", "keelson.log") }

// cleanUp removes the data of a stopped ephemeral instance.
func (o *options) cleanUp(dir string, err error) error {
	if !o.instance.Ephemeral {
		return err
	}
	return errors.Join(err, instance.Remove(dir))
}

// interrupted drops errors that only result from the requested stop.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// welcome is the message when everything is ready: the URL, the kubeconfig and the data directory.
func (o *options) welcome(server, kubeconfig, dir string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nKeelson is ready after %.1f s: a Kubernetes API at %s ", took.Seconds(), server)
	example := "foos"
	if o.noControllers {
		b.WriteString("without controllers.\n")
		example = "nodes"
	} else {
		fmt.Fprintf(&b, "with the controllers %s.\n", strings.Join(o.selected(), ", "))
		if missing := o.manager.Machines.Missing(); missing != "" {
			b.WriteString(missing + "\n")
		}
	}
	switch {
	case o.machine != nil && o.nodes > 1:
		fmt.Fprintf(&b, "Its %d nodes share this host: Pods run with %s.\n", o.nodes, o.machine.Runtime)
	case o.machine != nil:
		fmt.Fprintf(&b, "Its node is this host: Pods run with %s.\n", o.machine.Runtime)
	case o.nodes > 0:
		fmt.Fprintf(&b, "Its nodes are simulated: Pods report that they run, but nothing is executed.\n")
	}
	if o.noNode != "" {
		b.WriteString(o.noNode + "\n")
	}
	b.WriteString("\n")
	if o.mergeKubeconfig {
		fmt.Fprintf(&b, "  %s --context %s get %s\n", kubectl(), contextName, example)
	} else {
		fmt.Fprintf(&b, "  export KUBECONFIG=%s\n  %s get %s\n", usage.Quote(kubeconfig), kubectl(), example)
	}
	b.WriteString("\n")
	if o.consolePort >= 0 {
		fmt.Fprintf(&b, "`%s` shows all objects in a browser.\n", instance.Command("console", dir))
	}
	if o.reportFD != 0 {
		fmt.Fprintf(&b, "`%s` stops it.", instance.Command("down", dir))
	} else {
		b.WriteString("Ctrl-C stops it.")
	}
	if o.instance.Ephemeral {
		b.WriteString(" Nothing is kept.\n")
	} else {
		fmt.Fprintf(&b, " All objects are kept for the next `%s`.\n", instance.Command("up", dir))
	}
	return b.String()
}

// selected returns the names of the controllers that run.
func (o *options) selected() []string {
	names, err := manager.Selected(o.manager.Controllers)
	if err != nil { // validate has checked them
		return o.manager.Controllers
	}
	return names
}

// kubectl returns the command for kubectl: its name if it is installed, otherwise the path of the
// one built with keelson.
func kubectl() string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return "kubectl"
	}
	path, err := instance.Beside("kubectl")
	if err != nil {
		return "kubectl"
	}
	return usage.Quote(path)
}
