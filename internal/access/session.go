package access

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// reviewTimeout limits one review.
const reviewTimeout = 10 * time.Second

// maxReason is the size of the reason with which a WebSocket is closed, in bytes (RFC 6455).
const maxReason = 123

// ending is why a session ends.
type ending struct {
	code   websocket.StatusCode
	reason string
}

// Error implements error.
func (e *ending) Error() string { return e.reason }

// errLeft means that the client has ended the session.
var errLeft = errors.New("the client has ended the session")

// session is the use of a subresource by a client.
type session struct {
	server *Server
	target *target
	user   *user
	kind   string
	began  time.Time
	// ctx ends with the session; its cause is an *ending unless the client has left.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// active is when data was last sent, in nanoseconds.
	active atomic.Int64
}

// begin begins a session within the limits. The caller ends it.
func (s *Server) begin(r *http.Request, t *target, kind string) (*session, error) {
	limits := s.options.Limits
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, refuse(http.StatusServiceUnavailable, "the manager is stopping")
	case s.sessions[t.UID] >= limits.PerMachine:
		return nil, refuse(http.StatusTooManyRequests, "VirtualMachine %s/%s has %d sessions, the most that are allowed: end one", t.Namespace, t.Name, limits.PerMachine)
	case s.total >= limits.Total:
		return nil, refuse(http.StatusTooManyRequests, "there are %d sessions with machines, the most that are allowed: end one", limits.Total)
	}
	s.sessions[t.UID]++
	s.total++
	sessions.WithLabelValues(kind).Inc()
	who, _ := r.Context().Value(userKey{}).(*user)
	x := &session{server: s, target: t, user: who, kind: kind, began: time.Now()}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	x.touch()
	s.running.Add(1)
	s.running.Go(x.watch)
	s.options.Log.Info("Session began", "kind", kind, "user", who.Name, "namespace", t.Namespace, "name", t.Name, "uid", t.UID)
	return x, nil
}

// end ends a session after everything that belongs to it has ended.
func (x *session) end() {
	x.cancel(errLeft)
	s := x.server
	s.mu.Lock()
	s.total--
	if s.sessions[x.target.UID]--; s.sessions[x.target.UID] == 0 {
		delete(s.sessions, x.target.UID)
	}
	s.mu.Unlock()
	sessions.WithLabelValues(x.kind).Dec()
	s.options.Log.Info("Session ended", "kind", x.kind, "user", x.user.Name, "namespace", x.target.Namespace, "name", x.target.Name,
		"uid", x.target.UID, "took", time.Since(x.began).Round(time.Millisecond), "reason", context.Cause(x.ctx).Error())
	s.running.Done()
}

// touch notes that data was sent.
func (x *session) touch() { x.active.Store(time.Now().UnixNano()) }

// watch ends the session when it may not go on.
func (x *session) watch() {
	limits := x.server.options.Limits
	ticker := time.NewTicker(limits.Look)
	defer ticker.Stop()
	reviewed, answered := x.began, x.began
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if x.isGone() {
			x.cancel(&ending{client.CloseGone, "The VirtualMachine was deleted."})
			return
		}
		if now.Sub(time.Unix(0, x.active.Load())) >= limits.Idle {
			x.cancel(&ending{client.CloseIdle, "Nothing was sent for " + limits.Idle.String() + "."})
			return
		}
		if now.Sub(reviewed) < limits.Review {
			continue
		}
		reviewed = now
		allowed, err := x.review()
		switch {
		case err == nil && allowed:
			answered = now
		case err == nil:
			x.cancel(&ending{client.CloseForbidden, "The permission for this session was withdrawn."})
			return
		case now.Sub(answered) >= 3*limits.Review:
			x.cancel(&ending{client.CloseForbidden, "The permission for this session cannot be checked."})
			return
		default:
			x.server.options.Log.Error(err, "Failed to check the permission of a session", "user", x.user.Name)
		}
	}
}

// isGone reports whether the VirtualMachine certainly does not exist any more.
func (x *session) isGone() bool {
	_, id, err := x.server.options.Machines.Locate(x.ctx, x.target.Namespace, x.target.Name)
	return apierrors.IsNotFound(err) || err == nil && id.UID != x.target.UID
}

// review asks whether the user still has the permission.
func (x *session) review() (bool, error) {
	ctx, cancel := context.WithTimeout(x.ctx, reviewTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: x.user.Name, UID: x.user.UID, Groups: x.user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: x.target.Namespace, Name: x.target.Name, Verb: "get", Group: client.Group, Version: client.Version,
			Resource: client.Resource, Subresource: x.kind,
		},
	}}
	for key, values := range x.user.Extra {
		review.Spec.Extra[key] = values
	}
	if err := x.server.options.Review(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// closeWith closes a WebSocket when the session ends, and with that its reads and writes. The returned function waits for
// it.
func (x *session) closeWith(socket *websocket.Conn) (wait func()) {
	done := make(chan struct{})
	context.AfterFunc(x.ctx, func() {
		defer close(done)
		var why *ending
		if !errors.As(context.Cause(x.ctx), &why) {
			_ = socket.CloseNow() // the client has gone
			return
		}
		reason := why.reason
		if len(reason) > maxReason {
			reason = reason[:maxReason]
		}
		_ = socket.Close(why.code, reason) // a client that does not answer is cut off
	})
	return func() { <-done }
}
