package docker

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// listenPause is the time between two attempts to listen to an engine that is away. Tests
// shorten it.
var listenPause = time.Second

// listen tells of every change that the engine tells of, until the driver is closed.
func (d *Driver) listen() {
	away := false
	for d.ctx.Err() == nil {
		err := d.listenOnce(func() {
			if away {
				d.options.Log.Info("Docker engine answers again", "host", d.engine.DaemonHost())
			}
			away = false
		})
		if d.ctx.Err() != nil {
			return
		}
		if !away {
			away = true
			d.options.Log.Error(err, "Docker engine tells of nothing any more; trying again", "host", d.engine.DaemonHost())
			d.tellAll(nil) // they are unknown now
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// listenOnce listens until the engine goes away. It calls connected when it hears it.
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
	// What has happened before is not told.
	ids, err := d.identities(ctx)
	if err != nil {
		return err
	}
	connected()
	d.tellAll(ids)
	for {
		select {
		case message := <-stream.Messages:
			if id := identityOf(message.Actor.Attributes); checkUID(id.UID) == nil && isChange(message.Action) {
				d.tell(id)
			}
		case err := <-stream.Err:
			return err
		}
	}
}

// isChange reports whether an event is about what the controller wants to know.
func isChange(action events.Action) bool {
	switch action {
	case events.ActionCreate, events.ActionStart, events.ActionDie, events.ActionStop, events.ActionOOM, events.ActionPause,
		events.ActionUnPause, events.ActionDestroy, events.ActionUpdate, events.ActionRestart:
		return true
	}
	return false
}

// tellAll says that these machines, and all that are known, may have changed.
func (d *Driver) tellAll(ids []backend.Identity) {
	d.mu.Lock()
	for _, m := range d.machines {
		ids = append(ids, m.id)
	}
	d.mu.Unlock()
	for _, id := range ids {
		d.tell(id)
	}
}
