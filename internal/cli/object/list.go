package object

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// listFormats are the values of --output of a list, besides "", a table.
var listFormats = []string{"", "wide", "json", "yaml", "name"}

// NewList returns the command that lists the objects of the kind, with the columns of kubectl get.
func (k Kind[T]) NewList(flags *target.Flags, short string) *cobra.Command {
	all, format := false, ""
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: short,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(listFormats, format) {
				return usage.Errorf("--output=%s: must be wide, json, yaml or name", format)
			}
			o, err := k.Open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			return o.list(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), all, format)
		},
	}
	if k.Namespaced {
		cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, with more columns; json, yaml or name (default: a table)")
	return cmd
}

func (o *Objects[T]) list(ctx context.Context, out, notices io.Writer, all bool, format string) error {
	namespace := o.key("").Namespace
	if all {
		namespace = ""
	}
	if format != "" && format != "wide" {
		var found unstructured.UnstructuredList
		found.SetGroupVersionKind(o.Kind.GroupVersion().WithKind(o.Kind.Name + "List"))
		if err := o.List(ctx, &found, client.InNamespace(namespace)); err != nil {
			return o.Explain("", err)
		}
		return printList(out, &found, format)
	}
	table, err := o.table(ctx, namespace)
	switch {
	case err != nil:
		return o.Explain("", err)
	case len(table.Rows) == 0:
		_, err := fmt.Fprintf(notices, "No %ss found.\n", o.Kind.Name)
		return err
	}
	return o.Kind.printTable(out, table, all, format == "wide")
}

// table returns objects as the table that the API server makes for kubectl get.
func (o *Objects[T]) table(ctx context.Context, namespace string) (*metav1.Table, error) {
	config := rest.CopyConfig(o.API.Config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes = "application/json;as=Table;v=v1;g=meta.k8s.io"
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	where := path.Join("/apis", o.Kind.Group, o.Kind.Version)
	if namespace != "" {
		where = path.Join(where, "namespaces", namespace)
	}
	raw, err := c.Get().AbsPath(where, o.Kind.GroupVersionResource.Resource).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var table metav1.Table
	return &table, json.Unmarshal(raw, &table)
}

func (k Kind[T]) printTable(out io.Writer, from *metav1.Table, namespaces, wide bool) error {
	var header []any
	if namespaces {
		header = append(header, "NAMESPACE")
	}
	var shown []int
	for i, column := range from.ColumnDefinitions {
		if column.Priority == 0 || wide || slices.Contains(k.Columns, column.Name) {
			shown = append(shown, i)
			header = append(header, strings.ToUpper(column.Name))
		}
	}
	table := NewTable(out, header...)
	for _, row := range from.Rows {
		var cells []any
		if namespaces {
			var of metav1.PartialObjectMetadata
			if err := json.Unmarshal(row.Object.Raw, &of); err != nil {
				return err
			}
			cells = append(cells, of.Namespace)
		}
		for _, i := range shown {
			cells = append(cells, cell(row.Cells[i]))
		}
		table.Add(cells...)
	}
	return table.Flush()
}

// cell returns the text of a cell, which JSON has as a text, a number, a truth value or null.
func cell(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// printList prints objects as the List of kubectl get, or their names.
func printList(out io.Writer, found *unstructured.UnstructuredList, format string) error {
	items := make([]any, len(found.Items))
	for i := range found.Items {
		item := &found.Items[i]
		item.SetManagedFields(nil)
		items[i] = item.Object
		if format == "name" {
			if _, err := fmt.Fprintln(out, qualifiedName(item, item.GroupVersionKind())); err != nil {
				return err
			}
		}
	}
	if format == "name" {
		return nil
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "    ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
