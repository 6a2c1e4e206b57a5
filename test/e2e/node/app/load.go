package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// target is a URL of knock.
type target struct {
	url string

	mu             sync.Mutex
	answered, lost int
	inSequence     int // answers since the last failure
	last           string
}

// knock requests URLs all the time, each over a new connection, and serves what came of it at an address: a line for each URL, with the
// number of answers, of failures, of answers since the last failure, and the last failure.
func knock(address string, urls []string) error {
	var targets []*target
	for _, url := range urls {
		t := &target{url: url}
		targets = append(targets, t)
		go t.request()
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, t := range targets {
			t.mu.Lock()
			fmt.Fprintf(w, "%s %d %d %d %q\n", t.url, t.answered, t.lost, t.inSequence, t.last)
			t.mu.Unlock()
		}
	}))
}

// request requests the URL 20 times a second, or as often as it is answered.
func (t *target) request() {
	// The timeout is for a request whose Pod is gone; on a busy machine, others take seconds, too.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for range time.Tick(50 * time.Millisecond) {
		began := time.Now()
		response, err := client.Get(t.url)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		t.mu.Lock()
		if err == nil {
			t.answered++
			t.inSequence++
		} else {
			t.lost++
			t.inSequence = 0
			t.last = fmt.Sprintf("at %s, after %s: %v", time.Now().Format(time.StampMilli), time.Since(began).Round(time.Millisecond), err)
		}
		t.mu.Unlock()
	}
}

// count writes one number after the other to a file in a folder, and serves the last one that is on the disk. It goes on after the last number
// in the file, in which none before may be missing.
func count(folder string) error {
	file, err := os.OpenFile(filepath.Join(folder, "numbers"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another one writes to the file: %w", err)
	}
	number, err := lastNumber(file)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(w, number)
		}))
	}()
	for range time.Tick(5 * time.Millisecond) {
		if _, err := fmt.Fprintln(file, number+1); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		mu.Lock()
		number++
		mu.Unlock()
	}
	return nil
}

// lastNumber returns the last number in a file, of which the last line may be cut off: then it is removed.
func lastNumber(file *os.File) (number int, err error) {
	lines, complete := bufio.NewReader(file), int64(0)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return number, file.Truncate(complete)
		}
		if err != nil {
			return 0, err
		}
		if want := fmt.Sprintln(number + 1); line != want {
			return 0, fmt.Errorf("%w: %q comes after %d", fs.ErrInvalid, line, number)
		}
		number++
		complete += int64(len(line))
	}
}
