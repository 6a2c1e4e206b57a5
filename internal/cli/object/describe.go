package object

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// NewDescribe returns the command that shows objects with their events.
func (k Kind[T]) NewDescribe(flags *target.Flags, short string) *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME...", Short: short,
		Args: usage.Names(k.Name),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := k.Open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			c, err := o.API.Client(scheme.AddToScheme)
			if err != nil {
				return err
			}
			first := true
			_, err = each(args, func(name string) error {
				found, err := o.Find(cmd.Context(), name)
				if err != nil {
					return err
				}
				events, err := eventsOf(cmd.Context(), c, found)
				if err != nil {
					return err
				}
				if !first {
					fmt.Fprint(cmd.OutOrStdout(), "\n\n")
				}
				first = false
				return k.describe(cmd.OutOrStdout(), found, events, time.Now())
			})
			return err
		},
	}
}

// eventsOf returns the events of an object, the latest one last.
func eventsOf(ctx context.Context, c client.Client, object client.Object) ([]corev1.Event, error) {
	var found corev1.EventList
	namespace := cmp.Or(object.GetNamespace(), metav1.NamespaceDefault) // that of events of objects without one
	err := c.List(ctx, &found, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(object.GetUID())})
	if err != nil {
		return nil, fmt.Errorf("list the events of %s: %w", object.GetName(), err)
	}
	slices.SortStableFunc(found.Items, func(a, b corev1.Event) int { return EventTime(&a).Compare(EventTime(&b)) })
	return found.Items, nil
}

// EventTime returns the time of the last occurrence of an event.
func EventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}

// describe prints an object: what it is, its spec, its status with the conditions as a table, and its events.
func (k Kind[T]) describe(out io.Writer, object T, events []corev1.Event, now time.Time) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "status", "conditions")
	head := map[string]any{"Name": object.GetName(), "Created": object.GetCreationTimestamp().Format(time.RFC3339)}
	for name, value := range map[string]any{
		"Namespace": object.GetNamespace(), "Labels": object.GetLabels(), "Annotations": object.GetAnnotations(), "Spec": content["spec"], "Status": content["status"],
	} {
		if value != nil && fmt.Sprint(value) != "" && fmt.Sprint(value) != "map[]" {
			head[name] = value
		}
	}
	for _, name := range []string{"Name", "Namespace", "Labels", "Annotations", "Created", "Spec", "Status"} {
		value, found := head[name]
		if !found {
			continue
		}
		text, err := yaml.Marshal(map[string]any{name: value})
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return err
		}
	}
	if err := describeConditions(out, conditions, now); err != nil {
		return err
	}
	return describeEvents(out, events, now)
}

func describeConditions(out io.Writer, conditions []any, now time.Time) error {
	if len(conditions) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out, "\nConditions:"); err != nil {
		return err
	}
	table := NewTable(out, "TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, condition := range conditions {
		var c metav1.Condition
		if fields, ok := condition.(map[string]any); ok {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c); err != nil {
				return err
			}
		}
		table.Add(c.Type, c.Status, duration.HumanDuration(now.Sub(c.LastTransitionTime.Time)), c.Reason, c.Message)
	}
	return table.Flush()
}

func describeEvents(out io.Writer, events []corev1.Event, now time.Time) error {
	if len(events) == 0 {
		_, err := fmt.Fprintln(out, "\nNo events.")
		return err
	}
	if _, err := fmt.Fprintln(out, "\nEvents:"); err != nil {
		return err
	}
	table := NewTable(out, "TYPE", "REASON", "AGE", "FROM", "MESSAGE")
	for i := range events {
		e := &events[i]
		table.Add(e.Type, e.Reason, duration.HumanDuration(now.Sub(EventTime(e))), cmp.Or(e.ReportingController, e.Source.Component), e.Message)
	}
	return table.Flush()
}
