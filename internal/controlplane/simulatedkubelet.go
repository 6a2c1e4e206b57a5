package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// nameSimulatedKubelet names the files of the serving certificate of the simulated nodes.
const nameSimulatedKubelet = "simulated-kubelet"

// The answers of simulated nodes to kubectl logs, and to exec, attach, port-forward and cp.
const (
	simulatedLogs  = "This Pod is on a simulated node, which reports that it runs. No container was started, so there are no logs.\n"
	simulatedOther = "this Pod is on a simulated node, which reports that it runs; no container was started\n"
)

// serveSimulatedKubelet answers the requests of kube-apiserver to the kubelets of the simulated nodes, so that users learn why a Pod
// has no logs. It serves until the supervision ends, and returns its port on loopback. It needs no authentication, because its answers
// are constant.
func (cp *ControlPlane) serveSimulatedKubelet() (int32, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("listen for requests to the simulated nodes: %w", err)
	}
	server := &http.Server{
		Handler:           simulatedAnswers(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    1 << 16,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, // exec upgrades its connection
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(cp.dir.pki(nameSimulatedKubelet+".crt"), cp.dir.pki(nameSimulatedKubelet+".key"))
				return &pair, err
			},
		},
	}
	context.AfterFunc(cp.supervision, func() { _ = server.Close() }) // the process ends, or another one listens elsewhere
	cp.wg.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			cp.opts.Log.Error(err, "Could not serve the requests to the simulated nodes")
		}
	})
	return int32(listener.Addr().(*net.TCPAddr).Port), nil //nolint:forcetypeassert // of a TCP listener
}

// simulatedAnswers returns the handler of the part of a kubelet's API that kube-apiserver uses for Pods.
func simulatedAnswers() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, simulatedLogs) // the client may be gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, simulatedOther, http.StatusNotImplemented) })
	return mux
}
