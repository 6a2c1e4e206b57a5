package main

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
)

// empty deletes all Foos and Deployments of a namespace, and waits until what belongs to them is gone. No controller
// of Foos may run.
func (b *bench) empty(ctx context.Context, namespace string) error {
	foos, err := b.cluster.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	err = b.cluster.Each(ctx, len(foos.Items), func(ctx context.Context, writer cluster.Connection, i int) error {
		return writer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Delete(ctx, foos.Items[i].Name, metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	if b.cluster.Full {
		return b.awaitCollection(ctx, namespace)
	}
	deployments, err := b.cluster.Observer.Kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return b.cluster.Each(ctx, len(deployments.Items), func(ctx context.Context, writer cluster.Connection, i int) error {
		return writer.Kube.AppsV1().Deployments(namespace).Delete(ctx, deployments.Items[i].Name, metav1.DeleteOptions{})
	})
}

// awaitCollection deletes Deployments and waits until Kubernetes has cleaned up after them: else it would do so while
// the next burst is measured.
func (b *bench) awaitCollection(ctx context.Context, namespace string) error {
	err := b.cluster.Observer.Kube.AppsV1().Deployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return cluster.Until(ctx, func(ctx context.Context) error {
		one := metav1.ListOptions{Limit: 1}
		deployments, err := b.cluster.Observer.Kube.AppsV1().Deployments(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		sets, err := b.cluster.Observer.Kube.AppsV1().ReplicaSets(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		pods, err := b.cluster.Observer.Kube.CoreV1().Pods(namespace).List(ctx, one)
		if err != nil {
			return err
		}
		if len(deployments.Items)+len(sets.Items)+len(pods.Items) > 0 {
			return errors.New("there are Deployments, ReplicaSets or Pods left")
		}
		return nil
	})
}
