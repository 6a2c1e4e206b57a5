package backend

import (
	"slices"
	"testing"
)

// Nobody need watch, and a function that is called may call the watcher.
func TestWatcher(t *testing.T) {
	var w Watcher[string]
	var told []string
	w.Notify("nobody")
	w.Watch(func(id string) {
		told = append(told, id)
		w.Watch(func(id string) { told = append(told, "second "+id) })
	})
	w.Notify("a")
	w.Notify("b")
	if want := []string{"a", "second b"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
