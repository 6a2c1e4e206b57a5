// Package standin implements the command line of rke 1.x, including its pitfalls, without creating
// clusters:
//
//   - `rke up --config F` and `rke remove --force --config F`; exit code 0, or 1 for any error.
//   - Logs go to standard output as lines of time, level and msg; a failure ends with level=fatal.
//   - Next to D/NAME.yml, up writes D/NAME.rkestate, mode 0600, with private keys, and D/kube_config_NAME.yml. Without
//     the rkestate it creates a new authority.
//   - remove without --force asks for confirmation, and without it exits with code 0 and removes nothing.
//   - remove with unreachable hosts only warns, and exits with code 0, too.
//
// The section standin in the file makes it slow or makes it fail. Each call is recorded in
// D/NAME.calls.
package standin

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// config is the relevant part of a cluster.yml.
type config struct {
	Nodes []struct {
		Address string `json:"address"`
	} `json:"nodes"`
	Standin traps `json:"standin"`
}

// traps is the section standin.
type traps struct {
	// Pause is the duration of each step, such as 100ms.
	Pause string `json:"pause"`
	// Fail, UpFail and RemoveFail make everything, up or remove fail with that message.
	Fail       string `json:"fail"`
	UpFail     string `json:"upFail"`
	RemoveFail string `json:"removeFail"`
	// Until is a file that a step waits for, without a timeout.
	Until string `json:"until"`
	// Deaf ignores SIGTERM, and Child leaves a child process behind that ignores it, too.
	Deaf  bool `json:"deaf"`
	Child bool `json:"child"`
	// Unreachable is an unreachable host.
	Unreachable string `json:"unreachable"`
	// Silent exits with code 0 without output.
	Silent bool `json:"silent"`
}

// Main runs the command and returns its exit code.
func Main(args []string, stdin io.Reader, stdout io.Writer) int {
	if len(args) == 0 {
		return fatal(stdout, "usage: rke up|remove --config FILE")
	}
	path, force := "cluster.yml", false
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "--config" && i+1 < len(args):
			i++
			path = args[i]
		case args[i] == "--force":
			force = true
		default:
			return fatal(stdout, "Incorrect Usage: flag provided but not defined: "+args[i])
		}
	}
	r := &run{out: stdout, path: path, stem: strings.TrimSuffix(path, filepath.Ext(path))}
	r.note(args)
	data, err := os.ReadFile(path)
	if err != nil {
		return fatal(stdout, fmt.Sprintf("Failed to resolve cluster file: can not find cluster configuration file: open %s: no such file or directory", path))
	}
	if err := yaml.Unmarshal(data, &r.config); err != nil {
		return fatal(stdout, "Failed to parse cluster file: "+err.Error())
	}
	switch args[0] {
	case "up":
		err = r.up()
	case "remove":
		if !force && !r.confirmed(stdin) {
			return 0
		}
		err = r.remove()
	default:
		return fatal(stdout, "No help topic for '"+args[0]+"'")
	}
	if err != nil {
		return fatal(stdout, err.Error())
	}
	return 0
}

// run is a call.
type run struct {
	out        io.Writer
	path, stem string
	config     config
}

func (r *run) state() string { return r.stem + ".rkestate" }

func (r *run) kubeconfig() string {
	return filepath.Join(filepath.Dir(r.path), "kube_config_"+filepath.Base(r.path))
}

// note records the call.
func (r *run) note(args []string) {
	f, err := os.OpenFile(r.stem+".calls", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return // the directory is missing, and thus the file
	}
	defer func() { _ = f.Close() }()
	fmt.Fprintf(f, "rke %s\n", strings.Join(args, " "))
}

func (r *run) log(level, format string, args ...any) {
	fmt.Fprintf(r.out, "time=%q level=%s msg=%q\n", time.Now().UTC().Format(time.RFC3339), level, fmt.Sprintf(format, args...))
}

func fatal(out io.Writer, message string) int {
	(&run{out: out}).log("fatal", "%s", message)
	return 1
}

// confirmed asks for confirmation, as remove does.
func (r *run) confirmed(stdin io.Reader) bool {
	fmt.Fprint(r.out, "Are you sure you want to remove Kubernetes cluster [y/n]: ")
	answer, _ := bufio.NewReader(stdin).ReadString('\n') // no answer means no
	return strings.TrimSpace(answer) == "y"
}

// steps logs messages one after the other, with the pauses and pitfalls of the file.
func (r *run) steps(messages ...string) {
	pause, _ := time.ParseDuration(r.config.Standin.Pause) // empty means none
	if r.config.Standin.Deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	if r.config.Standin.Child {
		child := exec.Command("sh", "-c", `trap "" TERM; while :; do sleep 1; done`)
		_ = child.Start() // it is never waited for
	}
	for i, message := range messages {
		r.log("info", "%s", message)
		time.Sleep(pause) //nolint:forbidigo // takes time on purpose
		if i == 1 && r.config.Standin.Until != "" {
			for _, err := os.Stat(r.config.Standin.Until); err != nil; _, err = os.Stat(r.config.Standin.Until) {
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // as above
			}
		}
	}
}

func (r *run) up() error {
	if len(r.config.Nodes) == 0 {
		return errors.New("Cluster must have at least one etcd plane host: please specify one or more etcd in cluster config") //nolint:staticcheck // rke's message
	}
	host := r.config.Nodes[0].Address
	r.steps("Running RKE version: v1.8.13", "Initiating Kubernetes cluster",
		"[dialer] Setup tunnel for host ["+host+"]",
		"[certificates] Deploying kubernetes certificates to Cluster nodes",
		"[etcd] Building up etcd plane..", "[controlplane] Building up Controller Plane..",
		"[worker] Building up Worker Plane..", "[network] Setting up network plugin: canal", "[addons] Executing deploy job rke-coredns-addon")
	if fail := r.config.Standin.UpFail + r.config.Standin.Fail; fail != "" {
		return errors.New(fail)
	}
	authority, err := r.authority()
	if err != nil {
		return err
	}
	if err := r.writeKubeconfig(host, authority); err != nil {
		return err
	}
	if !r.config.Standin.Silent {
		r.log("info", "Finished building Kubernetes cluster successfully")
	}
	return nil
}

func (r *run) remove() error {
	r.steps("Tearing down Kubernetes cluster", "[dialer] Setup tunnel for host")
	if fail := r.config.Standin.RemoveFail + r.config.Standin.Fail; fail != "" {
		return errors.New(fail)
	}
	if host := r.config.Standin.Unreachable; host != "" {
		r.log("warning", "Failed to set up SSH tunneling for host [%s]: Can't retrieve Docker Info", host)
		r.log("warning", "Removing host [%s] from node lists", host)
	}
	for _, path := range []string{r.state(), r.kubeconfig()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !r.config.Standin.Silent {
		r.log("info", "Cluster removed successfully")
	}
	return nil
}

// authority returns the name of the authority in the state file, and creates the file if necessary.
func (r *run) authority() (string, error) {
	var state struct {
		Authority  string `json:"authority"`
		PrivateKey string `json:"privateKey"`
	}
	if data, err := os.ReadFile(r.state()); err == nil && json.Unmarshal(data, &state) == nil {
		return state.Authority, nil
	}
	state.Authority, state.PrivateKey = "kube-ca-"+rand.Text()[:8], "secret-"+rand.Text()
	data, err := json.Marshal(state)
	if err != nil {
		return "", err
	}
	return state.Authority, os.WriteFile(r.state(), data, 0o600)
}

// writeKubeconfig writes a kubeconfig unless it exists.
func (r *run) writeKubeconfig(host, authority string) error {
	if data, err := os.ReadFile(r.kubeconfig()); err == nil && strings.Contains(string(data), authority) {
		return nil
	}
	certificate, key, err := newCertificate()
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- cluster: {server: "https://%s:6443", insecure-skip-tls-verify: true}
  name: %s
contexts:
- context: {cluster: %s, user: kube-admin}
  name: local
current-context: local
users:
- name: kube-admin
  user:
    client-certificate-data: %s
    client-key-data: %s
`, host, authority, authority, encode("CERTIFICATE", certificate), encode("EC PRIVATE KEY", key))
	return os.WriteFile(r.kubeconfig(), []byte(text), 0o600)
}

func encode(kind string, der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func newCertificate() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "kube-admin"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	if certificate, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private); err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalECPrivateKey(private)
	return certificate, key, err
}
