package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// followInterval is how often a follower looks for the next run.
	followInterval = 200 * time.Millisecond
	// endTimeout is how long after the end of its log a Pod may take to be over.
	endTimeout = 10 * time.Second
)

// log reads the log of the container of a Pod, from its beginning if tail is negative.
func (p *pods) log(ctx context.Context, pod *corev1.Pod, tail int, follow bool) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{Container: container, Follow: follow}
	if tail >= 0 {
		lines := int64(tail)
		options.TailLines = &lines
	}
	log, err := p.rest.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("log").
		VersionedParams(options, scheme.ParameterCodec).Stream(ctx)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("the manager may not get pods/log in the namespace %s; see docs/install-pods.md", pod.Namespace)
	}
	return log, err
}

// ConsoleLog implements backend.Consoler. The log is that of the Pod, which has the output of the serial line and messages of QEMU and
// the launcher. It is kept as long as the Pod: until the next start, or until the machine is stopped.
func (d *Driver) ConsoleLog(ctx context.Context, id backend.Identity, options backend.LogOptions) (io.ReadCloser, error) {
	if _, _, err := d.seen(ctx, id); err != nil {
		return nil, err
	}
	r := &logReader{ctx: ctx, driver: d, id: id, options: options}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("read the console log of machine %s: %w", id.UID, err)
	}
	return r, nil
}

// logReader reads the log of a machine, run after run.
type logReader struct {
	ctx     context.Context
	driver  *Driver
	id      backend.Identity
	options backend.LogOptions
	// log is that of the Pod with the UID; nil between two runs.
	log io.ReadCloser
	pod types.UID
	// endedAt is when it has ended.
	endedAt time.Time
}

// open opens the log of the Pod, if there is one that was not read yet.
func (r *logReader) open() error {
	_, pod, err := r.driver.seen(r.ctx, r.id)
	if err != nil {
		return err
	}
	if pod == nil {
		return nil
	}
	if pod.UID == r.pod {
		if isOn(pod) && time.Since(r.endedAt) > endTimeout {
			return errors.New("the log has ended before the run; read it again")
		}
		return nil
	}
	status := machineStatus(pod)
	if status == nil || status.State.Running == nil && status.State.Terminated == nil {
		return nil // it has not begun
	}
	if r.log, err = r.driver.logs(r.ctx, pod, r.options.Tail, r.options.Follow); apierrors.IsNotFound(err) {
		return nil // it has just gone
	}
	if err == nil {
		r.pod, r.options.Tail = pod.UID, -1 // all of later runs
	}
	return err
}

// Read implements io.Reader.
func (r *logReader) Read(into []byte) (int, error) {
	for {
		if r.log != nil {
			n, err := r.log.Read(into)
			if !errors.Is(err, io.EOF) || n > 0 {
				return n, err
			}
			_ = r.log.Close() // it was only read
			r.log, r.endedAt = nil, time.Now()
		}
		if !r.options.Follow {
			return 0, io.EOF
		}
		timer := time.NewTimer(followInterval)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return 0, r.ctx.Err()
		case <-timer.C:
		}
		if err := r.open(); err != nil {
			return 0, err
		}
	}
}

// Close implements io.Closer.
func (r *logReader) Close() error {
	if r.log == nil {
		return nil
	}
	return r.log.Close()
}
