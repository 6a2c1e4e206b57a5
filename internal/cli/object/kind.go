package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

// Kind is a kind of objects that commands work on.
type Kind[T client.Object] struct {
	complete.Resource
	// Name is the kind, such as VirtualMachine.
	Name string
	// Command is the command for its objects, such as "keelson vm".
	Command string
	// Columns are columns of -o wide that lists always have.
	Columns []string
	// New returns an empty object.
	New func() T
	// Types adds the types of the objects, and of others that the commands use.
	Types func(*runtime.Scheme) error
	// Line describes the status of an object in a line.
	Line func(T) string
}

func (k Kind[T]) gvk() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Name) }

// Objects are the objects of a kind in an API, in the selected namespace if they have one.
type Objects[T client.Object] struct {
	client.Client
	API  *target.API
	Kind Kind[T]
}

// Open connects to the selected API.
func (k Kind[T]) Open(ctx context.Context, flags *target.Flags) (*Objects[T], error) {
	c, api, err := flags.Client(ctx, k.Types)
	if err != nil {
		return nil, err
	}
	return k.In(c, api), nil
}

// In returns the objects in an API, given a client of it.
func (k Kind[T]) In(c client.Client, api *target.API) *Objects[T] {
	return &Objects[T]{Client: c, API: api, Kind: k}
}

func (o *Objects[T]) key(name string) client.ObjectKey {
	if o.Kind.Namespaced {
		return client.ObjectKey{Namespace: o.API.Namespace, Name: name}
	}
	return client.ObjectKey{Name: name}
}

// Title names an object for the user, such as "VirtualMachine team/web".
func (o *Objects[T]) Title(name string) string {
	if o.Kind.Namespaced {
		name = o.API.Namespace + "/" + name
	}
	return o.Kind.Name + " " + name
}

// Find returns an object.
func (o *Objects[T]) Find(ctx context.Context, name string) (T, error) {
	found := o.Kind.New()
	if err := o.Get(ctx, o.key(name), found); err != nil {
		var none T
		return none, o.Explain(name, err)
	}
	return found, nil
}

// Explain explains an error of a request for an object; name is empty for a list.
func (o *Objects[T]) Explain(name string, err error) error {
	place := ""
	if o.Kind.Namespaced {
		place = " in the namespace " + o.API.Namespace
	}
	switch {
	case meta.IsNoMatchError(err), name == "" && apierrors.IsNotFound(err):
		return fmt.Errorf("%s has no %ss: their definition is not installed", o.API.Name, o.Kind.Name)
	case name == "":
		return fmt.Errorf("list the %ss%s: %w", o.Kind.Name, place, err)
	case apierrors.IsNotFound(err) && o.Kind.Namespaced:
		return fmt.Errorf("there is no %s %q%s; %s list --all-namespaces lists them", o.Kind.Name, name, place, o.Kind.Command)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %q; %s list lists them", o.Kind.Name, name, o.Kind.Command)
	}
	return fmt.Errorf("%s: %w", o.Title(name), err)
}

// CreateNew creates an object in the selected namespace.
func (o *Objects[T]) CreateNew(ctx context.Context, object T, output *Output) error {
	object.SetNamespace(o.key("").Namespace)
	err := output.client(o.Client).Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = o.Explain(object.GetName(), err)
		}
		return err
	}
	found, err := o.Find(ctx, object.GetName())
	if err != nil || !found.GetDeletionTimestamp().IsZero() {
		return fmt.Errorf("%s is being deleted; choose another name, or try again when it is gone", o.Title(object.GetName()))
	}
	remove := o.Kind.Command + " delete " + object.GetName()
	if namespace := found.GetNamespace(); namespace != "" {
		remove += " --namespace " + namespace
	}
	return fmt.Errorf("%s exists already; choose another name, or delete it: %s", o.Title(object.GetName()), remove)
}

// change changes an object, unless output is for a dry run of the client, and returns it.
func (o *Objects[T]) change(ctx context.Context, name string, change func(T, time.Time), output *Output) (T, error) {
	found, err := o.Find(ctx, name)
	if err != nil {
		return found, err
	}
	before := client.MergeFrom(found.DeepCopyObject().(T))
	change(found, time.Now())
	return found, o.Write(ctx, found, before, output)
}

// Write patches an object, unless output is for a dry run of the client.
func (o *Objects[T]) Write(ctx context.Context, object T, patch client.Patch, output *Output) error {
	if output.DryRun() {
		return nil
	}
	if err := output.client(o.Client).Patch(ctx, object, patch); err != nil {
		return o.Explain(object.GetName(), err)
	}
	return nil
}

// Look reports whether an object is as a command waits for, and otherwise describes its state.
type Look[T client.Object] func(T) (done bool, line string, err error)

// When returns a Look whose line is that of the kind.
func (k Kind[T]) When(done func(T) bool) Look[T] {
	return func(object T) (bool, string, error) { return done(object), k.Line(object), nil }
}

// Until waits until all objects are as look wants, and prints each change of the line of the first that is not to progress.
func (o *Objects[T]) Until(ctx context.Context, timeout time.Duration, progress io.Writer, look Look[T], names ...string) error {
	return Until(ctx, timeout, progress, func(ctx context.Context) (bool, string, error) {
		for _, name := range names {
			found, err := o.Find(ctx, name)
			if err != nil {
				return false, "", err
			}
			if !found.GetDeletionTimestamp().IsZero() {
				return false, "", fmt.Errorf("%s is being deleted", o.Title(name))
			}
			if done, line, err := look(found); !done || err != nil {
				return false, line, err
			}
		}
		return true, "", nil
	})
}

// each calls do for each name, and returns those without an error.
func each(names []string, do func(name string) error) (done []string, err error) {
	for _, name := range names {
		if failed := do(name); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		done = append(done, name)
	}
	return done, err
}
