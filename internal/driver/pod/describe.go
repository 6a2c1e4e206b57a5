package pod

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// startTimeout is how long a Pod may wait for its volumes and images before that is a fault. It continues to wait. Tests shorten it.
var startTimeout = 30 * time.Second

const (
	// memorySuffix follows the name of a run in that of an attempt to go on after it with the memory in a snapshot.
	memorySuffix = "-memory"
	// oomKilled is how a machine ended whose QEMU needed more memory than its Pod has for it.
	oomKilled = "OOMKilled: QEMU needed more memory than the limit of the Pod leaves it beside that of the guest. Use fewer disks and connections at a time, " +
		"and report it if it happens again, with the spec of the machine"
	// fieldRootDisk is the field with the size of the root disk.
	fieldRootDisk = "resource.rootDisk"
	// fieldDisks is the field with the other disks.
	fieldDisks = "disks"
)

// describe returns a server, given its Secret and its Pod, and the Pod that copies its disks. Each may be nil, but not the first two. It is
// a pure function.
func describe(secret *corev1.Secret, pod, filling *corev1.Pod, now time.Time) (backend.Server, error) {
	rec := &record{}
	if secret != nil {
		var err error
		if rec, err = recordOf(secret); err != nil {
			return backend.Server{}, err
		}
	}
	s := describeRun(rec, secret, pod, now)
	describeFill(&s, rec, filling, now)
	return s, nil
}

// describeRun returns a server without what is done to its disks.
func describeRun(rec *record, secret *corev1.Secret, pod *corev1.Pod, now time.Time) backend.Server {
	s := backend.Server{Identity: rec.Machine.Identity, State: backend.StateStopped, Hash: rec.Machine.Hash, Run: rec.Run}
	if pod == nil {
		s.ID = objectName(s.UID)
		s.Ended = endWithoutPod(rec)
		if rec.isAsleep(nil) {
			describeAsleep(&s, rec, nil)
		}
		return s
	}
	if secret == nil {
		s.Identity = identityOf(pod)
	}
	s.ID, s.Run = pod.Name, pod.Annotations[annotationRun]
	definition, _ := definitionOf(pod)
	s.Emulated = !definition.KVM
	stopped := rec.Stopped && rec.Run == s.Run
	switch status := machineStatus(pod); {
	case isOver(pod):
		s.Ended = endOf(pod, status)
		if stopped {
			s.Ended.Cause, s.Ended.Message = backend.CauseRequested, ""
		}
		if rec.isAsleep(pod) {
			describeAsleep(&s, rec, pod)
		}
		if pod.DeletionTimestamp != nil {
			// Kubelet is about to confirm that it is gone. Only then can its successor be created.
			s.Task, s.Progress = backend.TaskStop, "the Pod is being deleted"
		}
	case isLost(pod, now):
		s.State = backend.StateUnknown
		s.Message = lostNode(pod) + ". A machine must not run twice, so it waits until the node answers again. If the node is off, set its taint " +
			"node.kubernetes.io/out-of-service with the effect NoExecute; if it is gone for good, delete the Node: then the machine can start elsewhere"
	case status == nil || status.State.Running == nil:
		describeStart(&s, pod, status, rec, now)
	default:
		s.State, s.StartedAt = backend.StateRunning, status.State.Running.StartedAt.Time
		if rec.PausedRun == s.Run {
			s.State = backend.StatePaused
		}
		describeRunning(&s, pod, secret, rec)
		if pod.DeletionTimestamp != nil {
			s.Task, s.Progress = backend.TaskStop, "the guest is powering off"
			if definition.SleepWhenEvicted && !stopped {
				s.Task, s.Progress = backend.TaskSleep, "its Pod is being moved to another node"
			}
		}
	}
	return s
}

// isOver reports whether the containers of a Pod have certainly ended. Kubelet says so only then.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// machineStatus returns the status of the container; nil if there is none.
func machineStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// describeStart describes a Pod whose container does not run yet.
func describeStart(s *backend.Server, pod *corev1.Pod, status *corev1.ContainerStatus, rec *record, now time.Time) {
	s.Task, s.Progress = backend.TaskStart, "the Pod waits for a node"
	if pod.DeletionTimestamp != nil || status != nil && status.State.Terminated != nil {
		s.Task, s.Progress = backend.TaskStop, "the Pod is ending"
		return
	}
	if conditionOf(pod, corev1.PodScheduled) != nil {
		s.Progress = "the Pod is starting"
	}
	if blocked := blockedBy(pod, status); blocked != nil && (blocked.Unschedulable || hasWaited(pod, now)) {
		definition, _ := definitionOf(pod)
		s.Blocked, blocked.Waking = blocked, definition.Asleep || rec.mayBeAsleep()
	}
}

// blockedBy returns what a Pod waits for whose container does not run yet; nil if nobody says so.
func blockedBy(pod *corev1.Pod, status *corev1.ContainerStatus) *backend.Blocked {
	switch scheduled := conditionOf(pod, corev1.PodScheduled); {
	case scheduled != nil && scheduled.Status != corev1.ConditionTrue:
		return &backend.Blocked{Unschedulable: true, Message: scheduled.Message}
	case status != nil && status.State.Waiting != nil && status.State.Waiting.Message != "":
		return &backend.Blocked{Message: status.State.Waiting.Reason + ": " + status.State.Waiting.Message}
	}
	return nil
}

// hasWaited reports whether a Pod has waited for so long that what it waits for is hardly over by itself.
func hasWaited(pod *corev1.Pod, now time.Time) bool {
	return now.Sub(pod.CreationTimestamp.Time) >= startTimeout
}

// describeRunning describes a Pod whose container runs.
func describeRunning(s *backend.Server, pod *corev1.Pod, secret *corev1.Secret, rec *record) {
	for _, ip := range pod.Status.PodIPs {
		s.Addresses = append(s.Addresses, ip.IP)
	}
	definition, readable := rec.running(pod)
	switch {
	case readable && !definition.NoAgent:
		s.Agent = agentOf(pod, s.StartedAt)
	case readable && definition.ImageURL != "" && agentOf(pod, s.StartedAt) == backend.AgentWaiting:
		// The Pod is ready when QEMU runs, which may be long after the launcher began.
		s.Agent, s.Progress = backend.AgentWaiting, "its disk is being prepared"
	}
	if secret != nil && rec.Machine.Hash != "" && readable {
		growing := liveChanges(rec, pod).disks
		if len(growing) > 0 {
			grown := *rec.Started
			for _, disk := range growing {
				setSize(&grown, disk)
				s.Disks = append(s.Disks, backend.PendingDisk{Name: disk.Name, Message: "it grows when its PersistentVolumeClaim has been expanded"})
			}
			definition.DiskBytes, definition.Disks = grown.DiskBytes, newDefinition(&grown).Disks
		}
		s.Pending = pending(&definition, pod, rec, seedSum(secret))
		refused := ""
		if rec.Run == s.Run {
			refused = rec.DiskRefused
		}
		if slices.Contains(s.Pending, fieldRootDisk) || slices.Contains(s.Pending, fieldDisks) {
			s.PendingReason = refused
		}
		s.Disks = append(s.Disks, pendingDisks(definition.Disks, newDefinition(&rec.Machine).Disks, refused)...)
		s.Endpoints, s.Service = endpoints(s.Addresses, &rec.Machine, &definition)
	}
}

// agentOf returns the state of the guest agent: the Pod is ready while it responds.
func agentOf(pod *corev1.Pod, startedAt time.Time) backend.Agent {
	ready := conditionOf(pod, corev1.PodReady)
	switch {
	case ready == nil:
		return backend.AgentWaiting
	case ready.Status == corev1.ConditionTrue:
		return backend.AgentConnected
	case ready.LastTransitionTime.After(startedAt):
		return backend.AgentLost // it was ready before
	}
	return backend.AgentWaiting
}

// endpoints returns where the ports of a run are reached: at the IPv4 address of the Pod, because QEMU's network listens on no other.
func endpoints(addresses []string, machine *backend.Machine, definition *launcher.Definition) (all []v1alpha1.Endpoint, service *backend.Service) {
	if len(addresses) == 0 {
		return nil, nil
	}
	at := slices.IndexFunc(addresses, isIPv4)
	if at < 0 {
		if machine.Service {
			service = &backend.Service{Error: "its Pod has only IPv6 addresses, and machines in Pods have IPv4 only. Use a cluster whose Pods have IPv4 addresses, " +
				"or set spec.service to null; keelson vm port-forward works with both"}
		}
		return nil, service
	}
	ports := map[string]int32{}
	for _, port := range machine.Ports {
		udp := port.Protocol == v1alpha1.ProtocolUDP
		if !slices.Contains(definition.Ports, launcher.Port{Port: port.Port, UDP: udp}) {
			continue // it waits for a restart
		}
		ports[port.Name] = port.Port
		all = append(all, v1alpha1.Endpoint{Name: port.Name, Protocol: port.Protocol, Address: net.JoinHostPort(addresses[at], strconv.Itoa(int(port.Port)))})
	}
	if machine.Service {
		service = &backend.Service{Address: addresses[at], Ports: ports}
	}
	return all, service
}

func isIPv4(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Is4()
}

// pending returns the fields of the spec that wait for a restart.
func pending(running *launcher.Definition, pod *corev1.Pod, rec *record, seedSum string) (fields []string) {
	wanted := newDefinition(&rec.Machine)
	for _, field := range []struct {
		name    string
		differs bool
	}{
		{"resource.cpu", running.CPUs != wanted.CPUs},
		{"resource.memory", running.MemoryBytes != wanted.MemoryBytes},
		{fieldRootDisk, running.DiskBytes != wanted.DiskBytes},
		{fieldDisks, !slices.Equal(running.Disks, wanted.Disks)},
		{"display", running.Display != wanted.Display},
		{"cpuModel", running.CPUModel != wanted.CPUModel},
		{"ports", !slices.Equal(running.Ports, wanted.Ports)},
		{"cloudInit", pod.Annotations[annotationSeed] != seedSum},
		{"pod.evictionPolicy", running.SleepWhenEvicted != wanted.SleepWhenEvicted},
		{"pod.template", pod.Annotations[annotationTemplate] != templateSum(rec.Machine.Pod.Template)},
	} {
		if field.differs {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// endWithoutPod returns the end of the last run of a machine that has no Pod; nil if there was none.
func endWithoutPod(rec *record) *backend.Ended {
	switch {
	case rec.MemoryLost != nil:
		return &backend.Ended{Run: rec.Run + memorySuffix, Cause: backend.CauseMemoryLost, Message: rec.MemoryLost.Message, At: rec.MemoryLost.At}
	case rec.Stopped:
		return &backend.Ended{Run: rec.Run, Cause: backend.CauseRequested}
	case rec.Run == "":
		return nil
	case rec.Failure != nil:
		return &backend.Ended{Run: rec.Run, Cause: backend.CauseStartFailed, Message: rec.Failure.Message, At: rec.Failure.At}
	}
	return &backend.Ended{Run: rec.Run, Cause: backend.CauseHost, Message: "its Pod is gone: it was deleted, or evicted from its node"}
}

// endOf returns the end of the run of a Pod that is over.
func endOf(pod *corev1.Pod, status *corev1.ContainerStatus) *backend.Ended {
	ended := &backend.Ended{Run: pod.Annotations[annotationRun]}
	if status == nil || status.State.Terminated == nil {
		// Kubelet refused it, or the node is gone.
		ended.Cause, ended.Message = backend.CauseHost, describePod(pod)
		if status == nil || status.State.Running == nil {
			ended.Cause = backend.CauseStartFailed
		}
		return ended
	}
	terminated := status.State.Terminated
	ended.StartedAt, ended.At = terminated.StartedAt.Time, terminated.FinishedAt.Time
	switch report, ok := reportOf(status); {
	case terminated.Reason == "OOMKilled":
		ended.Cause, ended.Message = backend.CauseError, oomKilled
	case ok:
		ended.Cause, ended.Message = backend.Cause(report.Cause), report.Message
	default:
		ended.Cause, ended.Message = backend.CauseHost, fmt.Sprintf("its launcher exited with status %d", terminated.ExitCode)
		if words := describePod(pod); words != "" {
			ended.Message += ": " + words
		}
	}
	return ended
}

// reportOf returns what a launcher has reported when it ended; false if it has not.
func reportOf(status *corev1.ContainerStatus) (report launcher.Ended, ok bool) {
	if status == nil || status.State.Terminated == nil {
		return report, false
	}
	err := json.Unmarshal([]byte(status.State.Terminated.Message), &report)
	return report, err == nil && report.Cause != ""
}

// describePod returns why kubelet or a controller has ended a Pod.
func describePod(pod *corev1.Pod) string {
	switch {
	case pod.Status.Reason == "":
		return pod.Status.Message
	case pod.Status.Message == "":
		return pod.Status.Reason
	}
	return pod.Status.Reason + ": " + pod.Status.Message
}
