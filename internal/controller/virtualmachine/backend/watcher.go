package backend

import "sync"

// Watcher tells one function of changes. The zero value tells nobody.
type Watcher[T any] struct {
	mu     sync.Mutex
	notify func(T)
}

// Watch sets the function. It replaces the one before.
func (w *Watcher[T]) Watch(notify func(T)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify = notify
}

// Notify tells the function of the change of an object. It is called without a lock.
func (w *Watcher[T]) Notify(id T) {
	w.mu.Lock()
	notify := w.notify
	w.mu.Unlock()
	if notify != nil {
		notify(id)
	}
}
