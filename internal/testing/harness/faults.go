package harness

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Moment is the time of a fault relative to its request.
type Moment string

const (
	// Before means that the API server never gets the request.
	Before Moment = "before"
	// After means that the request takes effect, but its response is lost.
	After Moment = "after"
)

// Request is a request to the API server.
type Request struct {
	// Verb is get, list, create, update, patch, apply or delete.
	Verb string
	// Subresource is status, or empty.
	Subresource string
}

// IsWrite reports whether the request changes something.
func (r Request) IsWrite() bool { return r.Verb != "get" && r.Verb != "list" }

// Observe returns a client that calls before and after around each request of c. An error of before
// prevents the request; an error of after replaces its result. Both may panic, which simulates a
// crash at that point.
func Observe(c client.WithWatch, before, after func(Request) error) client.WithWatch {
	do := func(request Request, call func() error) error {
		if err := before(request); err != nil {
			return err
		}
		err := call()
		if failed := after(request); failed != nil {
			return failed
		}
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return do(Request{Verb: "get"}, func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return do(Request{Verb: "list"}, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return do(Request{Verb: "create"}, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return do(Request{Verb: "update"}, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return do(Request{Verb: "patch"}, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return do(Request{Verb: "apply"}, func() error { return c.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do(Request{Verb: "delete"}, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return do(Request{Verb: "update", Subresource: name}, func() error { return c.SubResource(name).Update(ctx, obj, opts...) })
		},
	})
}

// OnWrite returns a client that calls fault before or after the n-th write, counted from zero.
// reached reports whether there were that many writes. A crash at a read is equivalent to one
// before the next write.
func OnWrite(c client.WithWatch, n int, moment Moment, fault func() error) (faulty client.WithWatch, reached func() bool) {
	writes := -1
	at := func(request Request, m Moment) error {
		if !request.IsWrite() {
			return nil
		}
		if m == Before {
			writes++
		}
		if writes == n && moment == m {
			return fault()
		}
		return nil
	}
	faulty = Observe(c,
		func(request Request) error { return at(request, Before) },
		func(request Request) error { return at(request, After) })
	return faulty, func() bool { return writes >= n }
}
