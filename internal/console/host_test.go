package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestBusyProcessors(t *testing.T) {
	h, now := &host{}, time.Now()
	for _, step := range []struct {
		after      time.Duration
		busy, idle float64
		want       float64
	}{
		{0, 100, 300, 1},                // since the host was started
		{10 * time.Second, 110, 330, 1}, // 10 of 40 s of four processors
		{time.Millisecond, 110, 330, 1}, // too short
		{10 * time.Second, 150, 330, 4}, // all
		{10 * time.Second, 150, 330, 4}, // the clock of the host stands still
		{10 * time.Second, 150, 370, 0}, // none
	} {
		now = now.Add(step.after)
		if got := h.busyProcessors(now, step.busy, step.idle, 4); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
}

// The machines that are on and on this host request of it.
func TestCapacityOfTheHost(t *testing.T) {
	machine := func(host, state string) string {
		return fmt.Sprintf(`{"spec":{"resource":{"cpu":"2","memory":"1Gi"}},"status":{"host":{"name":%q},"server":{"state":%q}}}`, host, state)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/cloudnative.tw/v1alpha1/virtualmachines" && r.URL.Query().Get("continue") == "":
			_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"next"},"items":[%s,%s,{}]}`, machine("here", "Running"), machine("here", "Stopped"))
		case r.URL.Path == "/apis/cloudnative.tw/v1alpha1/virtualmachines":
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s]}`, machine("here", "Paused"), machine("elsewhere", "Running"))
		default:
			_, _ = fmt.Fprint(w, `{"items":[]}`)
		}
	}))
	t.Cleanup(server.Close)
	c := consoleOf(t, server.URL)
	for _, name := range []string{"", "here"} {
		c.host = nil
		if name != "" {
			c.host = &host{name: name}
		}
		recorder := httptest.NewRecorder()
		c.capacity(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/capacity", nil))
		var got struct{ Host *hostCapacity }
		if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, recorder.Body)
		}
		if name == "" {
			if got.Host != nil {
				t.Errorf("the console of another host has %+v", got.Host)
			}
			continue
		}
		if got.Host == nil {
			t.Fatalf("no host: %s", recorder.Body)
		}
		if got.Host.Machines != 2 || got.Host.Requested != (amounts{4, 2 << 30}) {
			t.Errorf("requested: %+v", got.Host)
		}
		if total, used := got.Host.Total, got.Host.Used; total.CPU < 1 || total.Memory <= used.Memory || used.Memory <= 0 || used.CPU > total.CPU {
			t.Errorf("total and used: %+v", got.Host)
		}
	}
}
