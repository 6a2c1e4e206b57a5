// Command app is the program in the containers of the real node's tests: a web server, or a Job.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// version is set at build time.
var version = "v0"

func main() {
	if filepath.Base(os.Args[0]) == "tar" { // for kubectl cp
		if err := tarMain(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "tar:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) < 2 {
		serve()
		return
	}
	switch os.Args[1] {
	case "say":
		fmt.Println(strings.Join(os.Args[2:], " "))
	case "env":
		for _, name := range os.Args[2:] {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
	case "get":
		for _, url := range os.Args[2:] {
			get(url)
		}
	case "ask":
		for _, text := range os.Args[3:] {
			if err := ask(os.Args[2], text); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	case "dial":
		dial(os.Args[2:])
	case "fail":
		fmt.Println("this goes wrong")
		os.Exit(3)
	case "secrets":
		if err := secrets(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "show":
		show(os.Args[2])
	case "listen":
		listen()
	case "turn":
		turn(os.Args[2])
	case "hog":
		hog()
	case "spin":
		spin()
	case "crowd":
		crowd()
	case "knock":
		fmt.Println(knock(os.Args[2], os.Args[3:]))
		os.Exit(1)
	case "count":
		fmt.Println(count(os.Args[2]))
		os.Exit(1)
	}
}

// serve responds to requests until it gets a signal to stop, and logs that.
func serve() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	socket, err := net.ListenPacket("udp", ":8080")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go echo(socket)
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

// echo sends datagrams back.
func echo(socket net.PacketConn) {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, _ = socket.WriteTo(buffer[:n], from) // best effort
	}
}

// get prints the response of a server, over a new connection.
func get(url string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer func() { _ = response.Body.Close() }()
	fmt.Println(response.Status)
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// dial prints which of the addresses accept a TCP connection within two seconds.
func dial(addresses []string) {
	reached := make([]bool, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() {
			c, err := net.DialTimeout("tcp", address, 2*time.Second)
			if err == nil {
				reached[i] = true
				_ = c.Close()
			}
		})
	}
	all.Wait()
	for i, address := range addresses {
		if reached[i] {
			fmt.Println(address)
		}
	}
}

// ask sends a datagram from a new socket and prints the response.
func ask(address, text string) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	n, err := c.Read(answer)
	if err == nil {
		fmt.Printf("%s\n", answer[:n])
	}
	return err
}

// secrets requests the Secrets of its namespace with the Pod's service account, and prints the
// response.
func secrets() error {
	var token, authority, namespace []byte
	for name, into := range map[string]*[]byte{"token": &token, "ca.crt": &authority, "namespace": &namespace} {
		data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/" + name)
		if err != nil {
			return err
		}
		*into = data
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	request, err := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api/v1/namespaces/"+string(namespace)+"/secrets", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	fmt.Println(response.Status)
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func show(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", data)
}

// listen prints the lines of its input.
func listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println("heard", lines.Text())
	}
}

// lastWords is the time that turn takes to end after the signal.
const lastWords = 2 * time.Second

// turn writes to a file in a folder when it begins and, after a while, when it ends, and whether
// another one was running.
func turn(folder string) {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	name, _ := os.Hostname()
	if err := takeTurn(folder, name, end); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func takeTurn(folder, name string, end <-chan os.Signal) error {
	protocol, err := os.OpenFile(filepath.Join(folder, "turns"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer protocol.Close()
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // which releases the lock, as a kill does
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_, err := fmt.Fprintf(protocol, "%s is not alone: %v\n", name, err)
		return err
	}
	if _, err := fmt.Fprintf(protocol, "begin %s\n", name); err != nil {
		return err
	}
	<-end
	<-time.After(lastWords)
	_, err = fmt.Fprintf(protocol, "end %s\n", name)
	return err
}

// spin uses a processor for two seconds and prints the processor time it got, in milliseconds.
func spin() {
	before := processorTime() // the start may have taken long
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		continue
	}
	fmt.Println((processorTime() - before).Milliseconds())
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// crowd starts threads until it is stopped. The Go runtime then prints their number.
func crowd() {
	for range 6000 {
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			select {}
		}()
		<-started
	}
	fmt.Println("no limit reached")
}

// hog allocates memory until it is stopped.
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
