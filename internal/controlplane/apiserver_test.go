package controlplane

import (
	"errors"
	"testing"
)

// A request to the holder of the port waits until it times out, and so does the start of the cluster.
func TestReadinessIsNotAskedOfTheHolderOfThePort(t *testing.T) {
	held := true
	cp := &ControlPlane{opts: Options{PortHeld: func(_ string, port int) bool { return held && port == 1 }}, dir: layout(t.TempDir())}
	cp.state.Port = 1
	if err := cp.checkReadyz(t.Context()); !errors.Is(err, errPortHeld) {
		t.Errorf("with a holder: %v", err)
	}
	held = false
	if err := cp.checkReadyz(t.Context()); err == nil || errors.Is(err, errPortHeld) {
		t.Errorf("without a holder, and without an API: %v", err)
	}
}
