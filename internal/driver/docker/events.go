package docker

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// listenPause is the time between two attempts to connect to an unavailable engine. Tests shorten
// it.
var listenPause = time.Second

// listen reports every change in the engine until the driver is closed.
func (d *Driver) listen() {
	away := false
	for d.ctx.Err() == nil {
		err := d.listenOnce(func() {
			if away {
				d.options.Log.Info("Docker engine is available again", "host", d.engine.DaemonHost())
			}
			away = false
		})
		if d.ctx.Err() != nil {
			return
		}
		if !away {
			away = true
			d.options.Log.Error(err, "Lost the event stream of the Docker engine; retrying", "host", d.engine.DaemonHost())
			d.notifyAll(nil) // their state is unknown now
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// listenOnce reports changes until the connection is lost. It calls connected once it receives
// events.
func (d *Driver) listenOnce(connected func()) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	filters := ours().Add("type", string(events.ContainerEventType))
	stream := d.engine.Events(ctx, client.EventsListOptions{Filters: filters})
	select {
	case err := <-stream.Err:
		return err
	default:
	}
	// The stream has no past events.
	ids, err := d.identities(ctx)
	if err != nil {
		return err
	}
	connected()
	d.notifyAll(ids)
	for {
		select {
		case message := <-stream.Messages:
			if id := identityOf(message.Actor.Attributes); checkUID(id.UID) == nil && isChange(message.Action) {
				d.watcher.Notify(id)
			}
		case err := <-stream.Err:
			return err
		}
	}
}

// isChange reports whether an event changes what Observe returns.
func isChange(action events.Action) bool {
	switch action {
	case events.ActionCreate, events.ActionStart, events.ActionDie, events.ActionStop, events.ActionOOM, events.ActionPause,
		events.ActionUnPause, events.ActionDestroy, events.ActionUpdate, events.ActionRestart:
		return true
	}
	return false
}

// notifyAll notifies the controller of a possible change of these machines and of all with state here.
func (d *Driver) notifyAll(ids []backend.Identity) {
	d.mu.Lock()
	for _, m := range d.machines {
		ids = append(ids, m.id)
	}
	d.mu.Unlock()
	for _, id := range ids {
		d.watcher.Notify(id)
	}
}
