package access

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// wakeTimeout limits the time in which a machine wakes for a session.
const wakeTimeout = 2 * time.Minute

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

// object is what a session is with.
type object struct {
	kind, resource  string
	namespace, name string
	uid             types.UID
	// locate returns the UID of the object that has the name now.
	locate func(context.Context) (types.UID, error)
}

// String returns the words for the object in messages.
func (o *object) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}

// session is the use of a subresource by a client.
type session struct {
	server *Server
	object object
	user   *user
	// kind is the subresource, verb how it is used.
	kind, verb string
	// log has the begin and the end.
	log   logr.Logger
	began time.Time
	// ctx ends with the session; its cause is an *ending unless the client has left.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// active is when data was last sent, in nanoseconds.
	active atomic.Int64
	// release ends the use of the machine; nil if it may be off.
	release func()
}

// begin begins a session with a machine within the limits. The caller ends it.
func (s *Server) begin(r *http.Request, t *target, kind string) (*session, error) {
	return s.beginWith(r, object{
		kind: "VirtualMachine", resource: client.Resource, namespace: t.Namespace, name: t.Name, uid: t.UID,
		locate: func(ctx context.Context) (types.UID, error) {
			_, id, err := s.options.Machines.Locate(ctx, t.Namespace, t.Name)
			return id.UID, err
		},
	}, kind, "get", false)
}

// beginAwake begins a session with a machine that runs, and wakes one that sleeps until someone connects. The limits apply before that.
func (s *Server) beginAwake(r *http.Request, t *target, kind string) (*session, error) {
	x, err := s.begin(r, t, kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), wakeTimeout)
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	if x.release, err = t.attend(ctx); err == nil {
		return x, nil
	}
	var why *ending
	if errors.As(context.Cause(x.ctx), &why) {
		err = refuse(http.StatusServiceUnavailable, "%s", why.reason)
	}
	x.cancel(err)
	x.end()
	return nil, err
}

// beginWith begins a session with an object within the limits. The caller ends it. A short one is logged at level 1.
func (s *Server) beginWith(r *http.Request, o object, kind, verb string, isShort bool) (*session, error) {
	limits := s.options.Limits
	most, total := limits.PerMachine, limits.Total
	if o.resource == client.Clusters {
		most, total = limits.PerCluster, limits.TotalClusters
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, refuse(http.StatusServiceUnavailable, "the manager is stopping")
	case s.sessions[o.uid] >= most:
		return nil, refuse(http.StatusTooManyRequests, "%s has %d sessions, the most that are allowed: end one", &o, most)
	case s.totals[o.resource] >= total:
		return nil, refuse(http.StatusTooManyRequests, "there are %d sessions with %s, the most that are allowed: end one", total, o.resource)
	}
	s.sessions[o.uid]++
	s.totals[o.resource]++
	sessions.WithLabelValues(kind).Inc()
	who, _ := r.Context().Value(userKey{}).(*user)
	x := &session{server: s, object: o, user: who, kind: kind, verb: verb, began: time.Now(), log: s.options.Log}
	if isShort {
		x.log = x.log.V(1)
	}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	x.touch()
	s.running.Add(1)
	s.running.Go(x.watch)
	x.log = x.log.WithValues("kind", kind, "user", who.Name, "object", o.kind, "namespace", o.namespace, "name", o.name, "uid", o.uid)
	x.log.Info("Session began")
	return x, nil
}

// end ends a session after everything that belongs to it has ended.
func (x *session) end() {
	x.cancel(errLeft)
	if x.release != nil {
		x.release()
	}
	s := x.server
	s.mu.Lock()
	s.totals[x.object.resource]--
	if s.sessions[x.object.uid]--; s.sessions[x.object.uid] == 0 {
		delete(s.sessions, x.object.uid)
	}
	s.mu.Unlock()
	sessions.WithLabelValues(x.kind).Dec()
	x.log.Info("Session ended", "took", time.Since(x.began).Round(time.Millisecond), "reason", context.Cause(x.ctx).Error())
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
			x.cancel(&ending{client.CloseGone, "The " + x.object.kind + " was deleted."})
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

// isGone reports whether the object certainly does not exist any more.
func (x *session) isGone() bool {
	uid, err := x.object.locate(x.ctx)
	return apierrors.IsNotFound(err) || err == nil && uid != x.object.uid
}

// review asks whether the user still has the permission.
func (x *session) review() (bool, error) {
	ctx, cancel := context.WithTimeout(x.ctx, reviewTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: x.user.Name, UID: x.user.UID, Groups: x.user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: x.object.namespace, Name: x.object.name, Verb: x.verb, Group: client.Group, Version: client.Version,
			Resource: x.object.resource, Subresource: x.kind,
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
