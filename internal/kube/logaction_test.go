package kube

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestLogActions(t *testing.T) {
	type action string
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Rejected", Message: "a message of another system"}
	for _, tt := range []struct {
		name    string
		level   slog.Level
		inner   reconcile.Func
		want    string
		wantErr bool
	}{
		{
			name: "all values in one line", level: -1,
			inner: func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				LogAction(ctx, action("create"))
				LogReady(ctx, ready)
				return reconcile.Result{RequeueAfter: 10 * time.Second}, nil
			},
			want: "level=DEBUG+3 msg=Reconciled action=create ready=False reason=Rejected requeueAfter=10s\n",
		},
		{
			name: "no action", level: -1,
			inner: func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil },
			want:  "level=DEBUG+3 msg=Reconciled action=none\n",
		},
		{
			name: "an error has its own line", level: -1,
			inner: func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, errors.New("secret words")
			},
			want: "level=DEBUG+3 msg=Reconciled action=none requeue=\"with backoff\"\n", wantErr: true,
		},
		{
			name: "quiet by default", level: 0,
			inner: func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				LogAction(ctx, action("create"))
				LogReady(ctx, ready)
				return reconcile.Result{}, nil
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			withoutTime := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}
			handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tt.level, ReplaceAttr: withoutTime})
			ctx := log.IntoContext(t.Context(), logr.FromSlogHandler(handler))
			if _, err := LogActions(tt.inner).Reconcile(ctx, reconcile.Request{}); (err != nil) != tt.wantErr {
				t.Errorf("error: %v", err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("the log (-want +got):\n%s", diff)
			}
		})
	}
}
