package inside

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerTimeout is how long a container may take to end after its signal, when the node is stopped. Pods with a
// longer grace period get it when they are deleted; here a user waits.
const containerTimeout = 10 * time.Second

// stopContainers stops every container, all at the same time. What cannot be stopped ends with the node.
func stopContainers() {
	ctx, cancel := context.WithTimeout(context.Background(), containerTimeout+5*time.Second)
	defer cancel()
	if err := tryStopContainers(ctx); err != nil {
		slog.Error("Could not stop every container politely", "error", err.Error())
	}
}

func tryStopContainers(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+containerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	client := cri.NewRuntimeServiceClient(connection)
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: running})
	if err != nil {
		return fmt.Errorf("list the containers: %w", err)
	}
	var wg sync.WaitGroup
	for _, c := range list.Containers {
		wg.Go(func() {
			_, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id, Timeout: int64(containerTimeout.Seconds())})
			if err != nil {
				slog.Error("Could not stop a container", "container", c.Metadata.GetName(), "error", err.Error())
			}
		})
	}
	wg.Wait()
	return nil
}
