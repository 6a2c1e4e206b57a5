// Command app is what the containers of the tests of a real node run: a web server, or what a Job does.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// version is set when it is built.
var version = "v0"

func main() {
	if len(os.Args) < 2 {
		serve()
		return
	}
	switch os.Args[1] {
	case "say":
		fmt.Println(strings.Join(os.Args[2:], " "))
	case "env":
		fmt.Printf("%s=%s\n", os.Args[2], os.Getenv(os.Args[2]))
	case "get":
		get(os.Args[2])
	case "fail":
		fmt.Println("this goes wrong")
		os.Exit(3)
	case "token":
		show("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	case "hog":
		hog()
	}
}

// serve answers until it is told to end, and then says so.
func serve() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		fmt.Fprintf(w, "%s on %s\n", version, name)
	})
	go func() {
		fmt.Println("serving", version)
		fmt.Println(http.ListenAndServe(":8080", nil))
		os.Exit(1)
	}()
	<-end
	fmt.Println("ending politely")
}

// get prints what a server answers.
func get(url string) {
	response, err := http.Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(response.Status)
}

func show(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", data)
}

// hog takes memory until somebody stops it.
func hog() {
	var all [][]byte
	for {
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = 1
		}
		all = append(all, chunk)
		if len(all) > 1000 {
			return
		}
	}
}
