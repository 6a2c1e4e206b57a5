// Command vm measures how long VirtualMachines of the driver qemu take from their creation until their guests have
// answered, on a control plane of its own, in turns with a floor in the same run: a shell script that starts the same QEMUs
// with the same arguments. Others do not boot: they start from a template, go on with the memory of another machine, or
// wake, also by a connection. It also measures how soon machines have an address and show a prompt by SSH, what idle machines
// cost, how soon a manager that was killed is back in charge of them, and the switch of a network against QEMU's user
// network, with bare QEMUs at both. Machines in Pods it measures on two real nodes, against bare QEMU, and on simulated ones, against plain
// Pods.
//
//	make bench-vm
//	make bench-vm ARGS='--sizes 1,10 --rounds 3 --json results.json'
package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	// bare: a shell script starts QEMUs, and a client waits at the sockets of their guest agents.
	bare = "bare QEMU"
	// keelson: `keelson manager` starts them for VirtualMachines.
	keelson = "VirtualMachine"
	// instant: the same, by a manager with --vm-instant-start, whose machines start from a template.
	instant = "from a template"
	// forked: machines that go on with the memory of another one; woken: the same, after they have slept.
	forked = "fork with memory"
	woken  = "fork, woken"
	// steadyEmpty and steadyFull: a manager without machines, and with idle ones; restarted: one that was started again.
	steadyEmpty = "without machines"
	steadyFull  = "with them"
	restarted   = "restarted manager"
)

// The targets, with the sizes that they are about.
const (
	aloneSize      = 1
	aloneLimit     = 150.0 // milliseconds above bare QEMU until the guest is ready
	instantLimit   = 300.0 // milliseconds until a machine from a template is ready,
	addressLimit   = 600.0 // has an address,
	promptLimit    = 900.0 // and shows a prompt by SSH
	forksSize      = 10
	forksLimit     = 2000.0 // milliseconds until the last of so many forks is ready
	asleepLimit    = 300.0  // milliseconds until a machine is asleep, and
	asleepLimitGiB = 1000.0 // for each GiB of its memory
	awakeLimit     = 350.0  // milliseconds until it is ready again
	answerLimit    = 500.0  // milliseconds until an idle machine answers a connection
	crowdSize      = 50
	eachLimit      = 70.0   // megabytes of each of so many machines that did not boot (PSS)
	crowdLimit     = 1.1    // times bare QEMU until the last guest is ready
	userSpaceLimit = 2000.0 // milliseconds from the start of QEMU
	inChargeLimit  = 1000.0 // milliseconds from the start of the manager
	writesLimit    = 6.0    // a machine until it is steady
	memoryLimit    = 100.0  // kilobytes of the manager a machine
	networkLimit   = 25.0   // megabytes of the switch of a network (PSS)
	idleLimit      = 0.1    // percent of a processor that it takes
	onlineLimit    = 20.0   // milliseconds above QEMU's user network until a guest is online
	trafficLimit   = 1.0    // times QEMU's user network
)

const (
	writers     = 8
	many        = 10  // with so many machines and more, there are a third of the rounds
	maxMachines = 250 // each gets an address
	memory      = 128 // of a guest, in MiB
	waitTimeout = 5 * time.Minute
)

const quick = "--sizes=1 --rounds=1 --connections=0 --steady=2 --idle=1s --restarts=1 --quiet=3s --traffic=2 --transfer=1 --pods=0 --losses=0 --simulated=0 --burst=0"

func main() { harness.Main("vm", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	sizes            *[]int
	steady, restarts int
	connections      int
	idle, quiet      time.Duration
	guest            string // the folder
	template         *template
	key              ssh.Signer
	reachable        *template // guests that it can log in to
	traffic          *[]int
	transfer         int       // bytes
	networked        *template // guests that carry data
	port             int       // the last one that was published
	pods, losses     int
	simulated        *[]int
	burstSize        int
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	b.addFlags()
	if err := r.Parse(args, 7, quick); err != nil {
		return err
	}
	b.transfer <<= 20
	if b.pods > 0 { // before half an hour of other work
		if _, err := b.findNodePrograms(); err != nil {
			return err
		}
	}
	guest, err := env.Binary(filepath.Join("guest", "guest.json"))
	if err != nil {
		return err
	}
	b.guest = filepath.Dir(guest)
	if b.key, err = newKey(); err != nil {
		return err
	}
	if b.Cluster, err = r.StartCluster(ctx, harness.APIOnly, writers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted = []string{"virtualmachines", "events", "secrets"}
	b.Uncounted = []string{"POST virtualmachines", "DELETE virtualmachines"}
	if err := r.NoteVersions(ctx, b.Cluster); err != nil {
		return err
	}
	version, err := harness.FirstLine(ctx, "qemu-system-x86_64", "--version")
	if err != nil {
		return err
	}
	r.Note("%s; machines have the default guest, one CPU and %d MiB", version, memory)
	r.Note("a shell script starts bare QEMUs with the same arguments; medians of %d rounds in turns, of %d from %d machines on",
		r.Rounds, b.rounds(many), many)
	for _, part := range []func(context.Context) error{b.measureBursts, b.measureInstant, b.measureForks, b.measureSleep, b.measurePods, b.measureSimulated} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if len(*b.traffic) > 0 {
		if err := b.measureNetworks(ctx); err != nil {
			return err
		}
	}
	if b.steady > 0 {
		if err := b.measureEmpty(ctx); err != nil {
			return err
		}
		if err := b.measureSteady(ctx); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// addFlags adds the flags of this benchmark.
func (b *bench) addFlags() {
	b.sizes = b.Sizes("sizes", "machines created at once", maxMachines, 1, 10, 50)
	b.Flags.IntVar(&b.connections, "connections", 3, "how often a connection wakes an idle machine, which sleeps after a minute; 0 leaves this out")
	b.Flags.IntVar(&b.steady, "steady", 50, "idle machines for writes, memory and restarts of the manager; 0 leaves these out")
	b.Flags.DurationVar(&b.idle, "idle", 130*time.Second, "how long to watch idle machines; Go collects its garbage every 2 minutes")
	b.Flags.IntVar(&b.restarts, "restarts", 3, "how often the manager of these machines is killed and started again")
	b.Flags.DurationVar(&b.quiet, "quiet", 45*time.Second, "how long nothing must be written for machines to be steady; they are probed every 20 s")
	b.traffic = b.Sizes("traffic", "machines on a network, the first half of which gets data from the others", maxMachines, 2, 10)
	b.Flags.IntVar(&b.transfer, "transfer", 64, "MiB of each transfer between guests")
	b.Flags.IntVar(&b.pods, "pods", 5, "machines in Pods of a node that is drained, with others in Pods of real nodes, which need root; 0 leaves these out")
	b.Flags.IntVar(&b.losses, "losses", 2, "how often the node of a machine is lost, which Kubernetes notices after 40 s")
	b.simulated = b.Sizes("simulated", "machines in Pods of simulated nodes, for the memory and the requests of the manager", 20000, 1000)
	b.Flags.IntVar(&b.burstSize, "burst", 1000, "machines in Pods of simulated nodes, created in turns with plain Pods; 0 leaves these out")
}

// rounds returns how often a size is measured.
func (b *bench) rounds(size int) int {
	if size >= many {
		return max(1, b.Rounds/3)
	}
	return b.Rounds
}

// startManager starts a manager that keeps its machines in a folder of this run.
func (b *bench) startManager(ctx context.Context, flags ...string) (*harness.Program, error) {
	return b.StartManager(ctx, b.Binary, "virtualmachine", append([]string{"--state-dir=" + b.stateDir(), "--vm-guest-dir=" + b.guest, "--vm-instant-start=false"}, flags...)...)
}

func (b *bench) stateDir() string { return filepath.Join(b.Dir, "state") }

// endMachines ends all machines: they outlive their manager, and must not outlive an interrupted run.
func (b *bench) endMachines(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return qemu.StopAll(ctx, manager.MachinesDir(b.stateDir()), qemu.StopOptions{})
}

// withManager does work with a manager. Afterwards, neither it nor a machine runs.
func (b *bench) withManager(ctx context.Context, work func(context.Context) error, flags ...string) (err error) {
	m, err := b.startManager(ctx, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop(), b.endMachines(ctx)) }()
	return m.During(ctx, work)
}

// measureBursts measures one size after the other.
func (b *bench) measureBursts(ctx context.Context) error {
	if len(*b.sizes)+len(*b.traffic)+b.pods == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context) error {
		if err := b.learnAll(ctx); err != nil {
			return fmt.Errorf("learn the arguments of QEMU: %w", err)
		}
		err := b.inSizes(ctx, []string{bare, keelson}, func(ctx context.Context, s *harness.Sample) error {
			if s.Contestant == bare {
				return b.burstOfBare(ctx, s)
			}
			return b.burst(ctx, s)
		})
		if err != nil || len(*b.sizes) == 0 {
			return err
		}
		return b.measureReached(ctx, reachedBare, reachedBoot)
	})
}

// inSizes measures contestants in turns, one size after the other.
func (b *bench) inSizes(ctx context.Context, contestants []string, burst func(context.Context, *harness.Sample) error) error {
	for _, n := range *b.sizes {
		err := b.InTurns(b.rounds(n), n, contestants, "ready", func(s *harness.Sample) error {
			ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
			defer cancel()
			return burst(ctx, s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// learnAll learns the arguments of QEMU for machines that only boot, for those that can be logged in to, and for those that carry data.
func (b *bench) learnAll(ctx context.Context) (err error) {
	if b.template, err = b.learn(ctx, ""); err == nil && len(*b.sizes) > 0 {
		b.reachable, err = b.learn(ctx, b.withLogin())
	}
	if err == nil && len(*b.traffic) > 0 {
		b.networked, err = b.learn(ctx, services(b.transfer))
	}
	if err == nil && b.template.isEmulated() {
		b.Note("the CPUs of the guests are emulated")
	}
	return err
}

var errTimeout = fmt.Errorf("the time limit of the benchmark is over, %s", waitTimeout)

func (b *bench) report() {
	all := b.Samples
	ready := func(contestant string, n int) float64 { return all.Of(contestant, n).Median("ready", harness.Last) }
	userSpace := all.Of(bare, aloneSize).Median("user space", harness.Last)
	if took, least := ready(keelson, aloneSize), ready(bare, aloneSize); least > 0 {
		b.Target("1 machine: ready, above bare QEMU", "≤", aloneLimit, 1000*(took-least), " ms",
			fmt.Sprintf("%s, and bare %s", harness.Milliseconds(took), harness.Milliseconds(least)))
		b.Target("1 machine: user space of the guest", "≤", userSpaceLimit, 1000*userSpace, " ms",
			"from the start of bare QEMU until the first process of the guest has written")
	}
	if took := ready(instant, aloneSize); took > 0 {
		b.Target("1 machine from a template: ready", "≤", instantLimit, 1000*took, " ms", "from its creation until its agent has answered")
	}
	if took := ready(forked, forksSize); took > 0 {
		b.Target(fmt.Sprintf("%d forks with memory: last ready", forksSize), "≤", forksLimit, 1000*took, " ms", "from the first creation; the snapshot was taken before")
	}
	if took, least := ready(keelson, crowdSize), ready(bare, crowdSize); least > 0 {
		b.Target(fmt.Sprintf("%d machines: last one ready, in times of bare QEMU", crowdSize), "≤", crowdLimit, took/least, "×",
			fmt.Sprintf("%s, and bare %s", harness.Seconds(took), harness.Seconds(least)))
	}
	for _, contestant := range []string{instant, forked, woken} {
		if each := all.Of(contestant, crowdSize).Median("each", harness.Last); each > 0 {
			b.Target(fmt.Sprintf("%d machines, %s: memory of each", crowdSize, contestant), "≤", eachLimit, each/1e6, " MB", "PSS of QEMU, the guest and the shim")
		}
	}
	for _, n := range *b.sizes {
		b.Printf("\n## %d at once\n", n)
		b.SampleTable(n, []string{bare, keelson, instant, forked, woken}, append(harness.Distribution("ready", harness.Seconds),
			harness.Column{Header: "× bare", Figure: "ready", Stat: harness.Last, Over: bare},
			harness.Column{Header: "user space, p50", Figure: "user space", Stat: harness.P50, Format: harness.Seconds},
			harness.Column{Header: "gone", Figure: "gone", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "QEMU, each", Figure: "QEMU", Stat: harness.Last, Format: harness.Megabytes},
			harness.Column{Header: "shim, each", Figure: "shim", Stat: harness.Last, Format: harness.Megabytes},
			harness.Column{Header: "of the guest", Figure: "guest", Stat: harness.Last, Format: harness.Megabytes},
			harness.Column{Header: "all, each", Figure: "each", Stat: harness.Last, Format: harness.Megabytes})...)
	}
	b.reportReached()
	b.reportSleep()
	b.reportPods()
	b.reportSimulated()
	b.reportNetworks()
	if b.steady > 0 {
		b.reportSteady(b.steady)
	}
}

func (b *bench) reportSteady(n int) {
	empty, full, restarts := b.Samples.Of(steadyEmpty, n), b.Samples.Of(steadyFull, n), b.Samples.Of(restarted, n)
	figure := func(name string) float64 { return full.Median(name, harness.Last) }
	writes, _ := full.Requests(steadyFull)
	if len(restarts) > 0 {
		b.Target(fmt.Sprintf("%d machines: a new manager in charge", n), "≤", inChargeLimit, 1000*restarts.Median("in charge", harness.Last), " ms",
			"from its start until every monitor and guest agent has answered it")
	}
	b.Target("writes a machine until steady, events included", "≤", writesLimit, writes.Total()/float64(n), "", writes.Each(n))
	more := figure("live heap") + figure("stacks") - empty.Median("live heap", harness.Last) - empty.Median("stacks", harness.Last)
	b.Target("memory of the manager a machine", "<", memoryLimit, more/1000/float64(n), " kB", "live heap and stacks")
	b.Target("memory of the switch of their network", "≤", networkLimit, figure("network")/1e6, " MB",
		"PSS; of its own, without files: "+harness.Megabytes(figure("network own")))
	b.Target("processor that it takes while they are idle", "≤", idleLimit, 100*figure("network busy"), " %", "of one")

	b.Printf("\n## %d idle machines\n\n", n)
	b.Printf("- All ready after %s, steady after %s, gone %s after the first deletion\n",
		harness.Seconds(figure("ready")), harness.Seconds(figure("steady")), harness.Seconds(figure("gone")))
	b.Printf("- Writes in an hour of idle time: %.2f a machine\n", figure("idle writes")*float64(time.Hour)/float64(b.idle)/float64(n))
	b.Printf("- Memory of a machine besides its guest: QEMU %s, its shim %s; of the guest's %d MiB, %s are in use\n",
		harness.Megabytes(figure("QEMU")), harness.Megabytes(figure("shim")), memory, harness.Megabytes(figure("guest")))
	for i, s := range restarts {
		same := "the same processes"
		if !slices.Equal(s.Figures["pids"], full[0].Figures["pids"]) {
			same = "OTHER PROCESSES"
		}
		b.Printf("- Restart %d of the manager: ready after %s, in charge after %s; %s; writes a machine: %s\n", i+1,
			harness.Milliseconds(harness.Last(s.Figures["started"])), harness.Milliseconds(harness.Last(s.Figures["in charge"])), same, s.Requests.Each(n))
	}
	b.SampleTable(n, []string{steadyEmpty, steadyFull}, harness.IdleColumns...)
}
