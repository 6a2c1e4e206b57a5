package controlplane_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// standIns play the components, for tests of what we do ourselves: in a few milliseconds they are where the real ones
// are after seconds. They take the real command lines. A file NAME.fault in their working directory (the folder
// sockets) changes what they do.
var standIns = map[string]func(){
	"etcd":                    standInEtcd,
	"kube-apiserver":          standInAPIServer,
	"kube-controller-manager": standInClient,
	"kube-scheduler":          standInClient,
	"kwok":                    standInClient,
	"kwok-stages":             func() { fmt.Println("{}"); syscall.Exit(0) },
}

// Faults of stand-ins.
const (
	faultExit = "exit" // end at once, with an error message
	faultDeaf = "deaf" // do not listen to SIGTERM
)

// standInBinary returns a program that can be used in place of keelson-kube.
func standInBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func standInEtcd() {
	end := setUp()
	if _, err := net.Listen("unix", "etcd:0"); err != nil {
		die(err)
	}
	end()
}

// standInAPIServer says that it is ready when etcd is there.
func standInAPIServer() {
	end := setUp()
	flags := map[string]string{}
	for _, arg := range os.Args[2:] {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	pair, err := tls.LoadX509KeyPair(flags["--tls-cert-file"], flags["--tls-private-key-file"])
	if err != nil {
		die(err)
	}
	l, err := tls.Listen("tcp", flags["--bind-address"]+":"+flags["--secure-port"], &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		die(err)
	}
	go func() {
		die(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, err := net.Dial("unix", "etcd:0")
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = c.Close()
		})))
	}()
	end()
}

func standInClient() { setUp()() }

// setUp does what the component's fault says. The function that it returns waits for SIGTERM and ends the program.
func setUp() (end func()) {
	fault, _ := os.ReadFile(os.Args[1] + ".fault")
	stop := make(chan os.Signal, 1)
	switch string(fault) {
	case faultExit:
		fmt.Println("this is the reason")
		syscall.Exit(3)
	case faultDeaf:
		signal.Ignore(syscall.SIGTERM)
		signal.Notify(stop, syscall.SIGUSR1) // never comes
	default:
		signal.Notify(stop, syscall.SIGTERM)
	}
	return func() {
		<-stop
		syscall.Exit(0) // os.Exit takes a second under the race detector
	}
}

func die(err error) {
	fmt.Println(err)
	syscall.Exit(1)
}
