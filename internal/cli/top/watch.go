package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
)

const (
	// retryDelay is the delay before a failed list is repeated.
	retryDelay = 5 * time.Second
	// restartDelay is the delay after the end of a watch.
	restartDelay = 500 * time.Millisecond
	// quiet is how long changes are collected before they are shown.
	quiet = 100 * time.Millisecond
	// maxEvents is the number of events that are shown, the latest ones.
	maxEvents = 50
)

// update has the objects of a section, or the sentence that takes their place.
type update struct {
	section int
	objects []client.Object
	problem string
}

// source watches the objects of a section.
type source struct {
	section  int
	resource string
	list     func() client.ObjectList
	// namespace restricts it; "" means all namespaces.
	namespace string
	client    client.WithWatch
	send      func(update)
}

// sources returns the sources of all sections.
func sources(c client.WithWatch, namespace string, send func(update)) []source {
	lists := [sectionCount]func() client.ObjectList{
		machines: func() client.ObjectList { return &vmv1alpha1.VirtualMachineList{} },
		clusters: func() client.ObjectList { return &clusterv1alpha1.ClusterList{} },
		cronTabs: func() client.ObjectList { return &stablev1.CronTabList{} },
		foos:     func() client.ObjectList { return &foov1alpha1.FooList{} },
		events:   func() client.ObjectList { return &corev1.EventList{} },
	}
	var all []source
	for section, list := range lists {
		s := source{section: section, resource: kinds[section].resource, list: list, namespace: namespace, client: c, send: send}
		switch section {
		case clusters:
			s.namespace = ""
		case events:
			s.resource = "events"
		}
		all = append(all, s)
	}
	return all
}

// run lists and watches until the context ends.
func (s *source) run(ctx context.Context) {
	for {
		err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		delay := restartDelay // the API server ends watches now and then
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			s.send(update{section: s.section, problem: s.describe(err)})
			delay = retryDelay
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// describe returns the sentence for an error.
func (s *source) describe(err error) string {
	where := " in " + s.namespace
	if s.namespace == "" {
		where = " of all namespaces"
		if s.section == clusters {
			where = ""
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("You may not list %s%s: ask an administrator.", s.resource, where)
	case apierrors.IsUnauthorized(err):
		return "The API does not accept your credentials."
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return fmt.Sprintf("The API has no %s: their definition is not installed.", s.resource)
	}
	// The address is in the first line, and a short line has no place for it.
	if away := (*url.Error)(nil); errors.As(err, &away) {
		return fmt.Sprintf("The API does not answer, trying again: %v", away.Err)
	}
	return fmt.Sprintf("The %s cannot be read, trying again: %v", s.resource, err)
}

// watch lists the objects and watches them until the watch ends.
func (s *source) watch(ctx context.Context) error {
	list := s.list()
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	known := map[types.UID]client.Object{}
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(client.Object); ok {
			known[o.GetUID()] = o
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.show(known)
	watching, err := s.client.Watch(ctx, s.list(), client.InNamespace(s.namespace), &client.ListOptions{
		Raw: listOptions(list.GetResourceVersion()), Namespace: s.namespace,
	})
	if err != nil {
		return err
	}
	defer watching.Stop()
	return s.follow(watching, known)
}

// follow shows the changes of a watch until it ends.
func (s *source) follow(watching watch.Interface, known map[types.UID]client.Object) error {
	var due <-chan time.Time
	for {
		select {
		case event, open := <-watching.ResultChan():
			if !open {
				return nil
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			object, ok := event.Object.(client.Object)
			switch {
			case !ok || event.Type == watch.Bookmark:
				continue
			case event.Type == watch.Deleted:
				delete(known, object.GetUID())
			default:
				known[object.GetUID()] = object
			}
			if due == nil {
				due = time.After(quiet)
			}
		case <-due:
			due = nil
			s.show(known)
		}
	}
}

func (s *source) show(known map[types.UID]client.Object) {
	objects := slices.Collect(maps.Values(known))
	if s.section == events {
		objects = latest(objects, known)
	}
	s.send(update{section: s.section, objects: objects})
}

// latest returns the latest events, the last one first, and forgets the others.
func latest(objects []client.Object, known map[types.UID]client.Object) []client.Object {
	when := func(o client.Object) time.Time {
		if event, ok := o.(*corev1.Event); ok {
			return object.EventTime(event)
		}
		return time.Time{}
	}
	slices.SortFunc(objects, func(a, b client.Object) int {
		return cmp.Or(when(b).Compare(when(a)), strings.Compare(string(b.GetUID()), string(a.GetUID()))) // many have the same second
	})
	if len(objects) > maxEvents {
		for _, old := range objects[maxEvents:] {
			delete(known, old.GetUID())
		}
		objects = objects[:maxEvents]
	}
	return objects
}
