package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

func TestCloseDoesNotFailWhatItInterrupts(t *testing.T) {
	e := New(Options{Dir: t.TempDir()})
	m := &member{name: "demo", uid: "demo"}
	e.clusters[m.uid] = m
	e.begin(m, false, "", func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("start etcd: %w", ctx.Err())
	})
	op, done := m.op, m.done
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if op.State != v1alpha1.OperationProcessing || !errors.Is(op.Err, cluster.ErrStopping) {
		t.Errorf("the operation is %+v", op)
	}
}

// What is asked for while the engine closes is refused, or over when it is closed.
func TestNothingBeginsAfterClose(t *testing.T) {
	for range 50 {
		e := New(Options{Dir: t.TempDir()})
		var closed atomic.Bool
		e.Notify(func(string) {
			if closed.Load() {
				t.Error("an operation goes on after Close")
			}
		})
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				err := e.Delete(context.WithoutCancel(t.Context()), cluster.Request{Name: "demo", UID: types.UID(fmt.Sprint(i))})
				if err != nil && !errors.Is(err, cluster.ErrStopping) {
					t.Error(err)
				}
			})
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		closed.Store(true)
		calls.Wait()
		e.wg.Wait()
		if err := e.Delete(t.Context(), cluster.Request{Name: "late", UID: "late"}); !errors.Is(err, cluster.ErrStopping) {
			t.Fatalf("Delete after Close: %v, want %v", err, cluster.ErrStopping)
		}
	}
}
