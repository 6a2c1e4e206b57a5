package top

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	accessclient "github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

const (
	// usageInterval is the interval of reads of the usage; the access API has samples every 15 s.
	usageInterval = 15 * time.Second
	// maxUsage is the number of machines whose usage is read.
	maxUsage = 50
	// verbTimeout is the longest time of a verb that is not interactive.
	verbTimeout = 30 * time.Second
)

// loads are the usage of machines.
type loads map[types.UID]load

// The messages of the program, besides update and loads.
type (
	// tick comes every second.
	tick time.Time
	// usageDue asks for a read of the usage.
	usageDue struct{}
	// outcome is the result of a verb.
	outcome string
)

// screen runs the model: it has the objects, and does what keys ask for.
type screen struct {
	model
	// ctx ends with the program.
	ctx       context.Context // the interface of bubbletea has none
	client    client.WithWatch
	api       *target.API
	namespace string
	objects   [sectionCount][]client.Object
	loads     loads
}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd {
	s.now = time.Now()
	return tea.Batch(nextTick(), usageAfter(time.Second))
}

func nextTick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return tick(now) })
}

// usageAfter asks for the usage after a delay.
func usageAfter(delay time.Duration) tea.Cmd {
	return tea.Tick(delay, func(time.Time) tea.Msg { return usageDue{} })
}

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return s, s.do(s.press(msg.String()))
	case tick:
		s.now = time.Time(msg)
		for section := range sectionCount {
			s.refresh(section)
		}
		return s, nextTick()
	case update:
		s.objects[msg.section] = msg.objects
		if msg.problem != "" {
			s.show(msg.section, nil, msg.problem)
			return s, nil
		}
		s.refreshLoaded(msg.section)
	case usageDue:
		if !s.sections[machines].loaded {
			return s, usageAfter(time.Second)
		}
		return s, s.readUsage()
	case loads:
		s.loads = msg
		s.refresh(machines)
		return s, usageAfter(usageInterval)
	case outcome:
		s.message = string(msg)
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	view := tea.NewView(s.view())
	view.AltScreen = true
	return view
}

// refresh makes the rows of a section that was loaded: they have ages.
func (s *screen) refresh(section int) {
	if s.sections[section].loaded && s.sections[section].problem == "" {
		s.refreshLoaded(section)
	}
}

func (s *screen) refreshLoaded(section int) {
	s.show(section, rowsOf(section, s.objects[section], s.loads, s.now), "")
}

// rowsOf returns the rows of objects.
func rowsOf(section int, objects []client.Object, used loads, now time.Time) []row {
	rows := make([]row, 0, len(objects))
	for _, object := range objects {
		switch object := object.(type) {
		case *vmv1alpha1.VirtualMachine:
			rows = append(rows, machineRow(object, used, now))
		case *clusterv1alpha1.Cluster:
			rows = append(rows, clusterRow(object, now))
		case *stablev1.CronTab:
			rows = append(rows, cronTabRow(object, now))
		case *foov1alpha1.Foo:
			rows = append(rows, fooRow(object, now))
		case *corev1.Event:
			rows = append(rows, eventRow(object, now))
		}
	}
	if section == events {
		return rows // the latest first
	}
	return sorted(rows)
}

// readUsage reads the usage of the machines that run. What cannot be read is not shown.
func (s *screen) readUsage() tea.Cmd {
	var running []*vmv1alpha1.VirtualMachine
	for _, object := range s.objects[machines] {
		vm, ok := object.(*vmv1alpha1.VirtualMachine)
		if ok && vm.Status.PrintableStatus == vmv1alpha1.StatusRunning && len(running) < maxUsage {
			running = append(running, vm)
		}
	}
	return func() tea.Msg {
		found := loads{}
		ctx, cancel := context.WithTimeout(s.ctx, usageInterval)
		defer cancel()
		for _, vm := range running {
			if usage, err := accessclient.ReadUsage(ctx, s.api.Config, vm.Namespace, vm.Name); err == nil {
				found[vm.UID] = load{last(usage.CPUPercent), last(usage.MemoryPercent)}
			}
		}
		return found
	}
}

// last returns the last value of a series; NaN if there is none.
func last(series accessclient.Series) float64 {
	if len(series) == 0 {
		return math.NaN()
	}
	return series[len(series)-1]
}

// do carries out what a key asked for.
func (s *screen) do(a action) tea.Cmd {
	switch {
	case a.quit:
		return tea.Quit
	case a.remove:
		object := s.find(a.object.uid)
		return func() tea.Msg { return s.remove(object, a.object) }
	case len(a.words) == 0:
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return func() tea.Msg { return outcome(err.Error()) }
	}
	words := append(append(a.words, a.object.name), s.api.Selected.Arguments()...)
	if a.object.namespace != "" {
		words = append(words, "--namespace="+a.object.namespace)
	}
	if a.interactive {
		var said bytes.Buffer
		cmd := exec.CommandContext(s.ctx, self, words...)
		cmd.Stderr = io.MultiWriter(os.Stderr, &said)
		return tea.ExecProcess(cmd, func(err error) tea.Msg {
			if err == nil {
				return outcome("")
			}
			return outcome(cmp.Or(lastLine(said.String()), err.Error()))
		})
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(s.ctx, verbTimeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, self, words...).CombinedOutput()
		if err != nil {
			return outcome(cmp.Or(lastLine(string(out)), err.Error()))
		}
		return outcome(lastLine(string(out)))
	}
}

// lastLine returns the last line of an output.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// find returns an object of the screen; nil if it is not there any more.
func (s *screen) find(uid types.UID) client.Object {
	for _, objects := range s.objects {
		for _, object := range objects {
			if object.GetUID() == uid {
				return object
			}
		}
	}
	return nil
}

// remove deletes an object, and not one that was created with its name in the meantime.
func (s *screen) remove(object client.Object, r row) outcome {
	if object == nil {
		return outcome(qualified(r) + " does not exist any more")
	}
	ctx, cancel := context.WithTimeout(s.ctx, verbTimeout)
	defer cancel()
	if err := s.client.Delete(ctx, object, client.Preconditions{UID: &r.uid}); client.IgnoreNotFound(err) != nil {
		return outcome(err.Error())
	}
	return outcome(qualified(r) + " is being deleted")
}
