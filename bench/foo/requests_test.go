package main

import (
	"testing"
	"time"
)

func TestRequests(t *testing.T) {
	r := requests{
		Methods: map[string]float64{"GET": 3, "POST": 12, "PUT": 10},
		Served:  map[string]float64{"POST deployments": 10, "PUT foos/status": 10, "POST events": 2, "WATCH foos": 1, "WATCH deployments": 1},
	}
	if got := r.total(); got != 23 {
		t.Errorf("total %v, want 23: two of the GETs opened a watch", got)
	}
	if got := r.writes(); got != 22 {
		t.Errorf("writes %v, want 22", got)
	}
	const want = "2.20 writes a Foo (POST deployments 1.00, POST events 0.20, PUT foos/status 1.00); without events 2.00"
	if got := r.describeWrites(10, false); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestIsCounted(t *testing.T) {
	for what, want := range map[string]bool{
		"PUT foos/status":        true,
		"PUT foos/status (409)":  true,
		"POST deployments":       true,
		"APPLY deployments":      true,
		"POST events":            true,
		"WATCH foos":             true,
		"POST foos":              false, // the benchmark
		"LIST foos":              false, // the benchmark, looking whether they are steady
		"GET deployments":        false,
		"PUT deployments/status": true,
	} {
		if got := isCounted(what); got != want {
			t.Errorf("isCounted(%q) = %v, want %v", what, got, want)
		}
	}
}

func TestSumUp(t *testing.T) {
	zero := time.Unix(0, 0)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	sent, answered := []time.Time{at(5), at(0)}, []time.Time{at(7), at(3)}
	var b burst
	if err := b.sumUp(sent, answered, map[string]time.Time{objectName(0): at(9), objectName(1): at(20)}); err != nil {
		t.Fatal(err)
	}
	if b.Total != 20*time.Millisecond {
		t.Errorf("total %s, want 20ms: from the first sent to the last seen", b.Total)
	}
	if b.FromSent.Min != 4*time.Millisecond || b.FromAnswered.Max != 17*time.Millisecond {
		t.Errorf("from sent %+v, from answered %+v", b.FromSent, b.FromAnswered)
	}
	if err := b.sumUp(sent, answered, map[string]time.Time{objectName(0): at(9), "stranger": at(20)}); err == nil {
		t.Error("a Foo without a Deployment is no error")
	}
}
