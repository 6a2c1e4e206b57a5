package enginetest

import (
	"slices"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

// expectChange applies a change of the cluster.
func (r *run) expectChange() {
	before := r.apply()
	r.Change(&r.request)
	if seen := r.observe(); seen.Applied || !seen.Exists {
		r.Errorf("after a change of the spec Observe returns Applied %v, Exists %v", seen.Applied, seen.Exists)
	}
	if r.Restarts {
		r.expectRestart()
	}
	if after := r.apply(); after.ConfigHash == before.ConfigHash {
		r.Error("the change did not change the applied hash")
	}
}

// expectRestart applies a change, and expects that the engine notifies about the API that is down, and reports it as down until it responds
// again, although a process may run.
func (r *run) expectRestart() {
	r.mu.Lock()
	clear(r.woken)
	r.mu.Unlock()
	r.do(r.engine.Apply(r.Context(), r.request))
	wasDown, notified := false, false
	r.eventually("the change is applied", func() bool {
		seen := r.observe()
		if seen.Applied {
			return true
		}
		isDown := slices.ContainsFunc(seen.Components, func(c cluster.Component) bool { return c.Name == cluster.ComponentAPIServer && !c.Up })
		if wasDown && !isDown {
			r.Error("The restarted API is reported to run, and the change is not applied")
		}
		wasDown = isDown
		r.mu.Lock()
		defer r.mu.Unlock()
		notified = notified || isDown && r.woken[r.request.Name]
		return false
	})
	if !notified {
		r.Error("Nothing was notified while the API was down")
	}
}
