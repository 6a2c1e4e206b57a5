//go:build soak

package node

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	soakNodes = 3
	// answerTimeout limits one request to a machine.
	answerTimeout = 10 * time.Second
)

// soakedMachine appends the query of a request to a file, and responds with the file when it is durable.
const soakedMachine = `---
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: soak-%d}
spec:
  resource: {cpu: 1, memory: 128Mi%s}
  terminationGracePeriodSeconds: 5
  cloudInit:
    userData: |
      #cloud-config
      bootcmd:
      - mkdir -p /root/www/cgi-bin
      - printf '#!/bin/sh\necho $QUERY_STRING >>/root/written; sync; echo; cat /root/written\n' >/root/www/cgi-bin/add
      - chmod 755 /root/www/cgi-bin/add
      - touch /root/www/index.html
      - busybox httpd -p 8080 -h /root/www
  readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 2, timeoutSeconds: 30}
`

// soaked is a machine of the soak test.
type soaked struct {
	name, uid string
	// keeps means that it has a disk, and so stays on its node. The others start anywhere, with nothing of what they wrote.
	keeps bool
	next  int
	// durable are the numbers that it has confirmed.
	durable []int
}

// soak is the world of the soak test.
type soak struct {
	*testing.T
	u        *user
	config   *rest.Config
	random   *rand.Rand
	machines []*soaked
	counts   map[string]int
	// outage is the longest time that the API is away.
	outage time.Duration
}

// TestSoakMachinesInPods kills, stops, drains, freezes and partitions three nodes, kills the manager and the API, kills and freezes QEMUs,
// and deletes Pods, at random. No machine ever runs twice
// at once, and those with a disk have all that they have confirmed. Afterwards, all run, and after their deletion nothing is left.
func TestSoakMachinesInPods(t *testing.T) {
	length, n, outage := 20*time.Minute, 20, 5*time.Minute
	if os.Getenv("KEELSON_SOAK") == "short" {
		length, n, outage = time.Minute, 4, time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{T: t, u: newUser(t), random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, outage: outage}
	t.Cleanup(func() { // before the instance stops
		if t.Failed() {
			s.u.Run(t, "kubectl", "get", "vm,pods,nodes", "-o", "wide")
			s.u.Run(t, "kubectl", "get", "events", "--sort-by=.lastTimestamp")
		}
	})
	s.begin(n)
	most := watchAll(t, s.machines)
	var order []int
	for end := time.Now().Add(length); time.Now().Before(end); order = order[1:] {
		if len(order) == 0 {
			order = s.random.Perm(len(faults)) // so that each happens in the long test
		}
		what := faults[order[0]]
		what.happens(s, s.random.IntN(soakNodes), s.machines[s.random.IntN(len(s.machines))])
		s.counts[what.name]++
		s.pause(15 * time.Second)
		for _, m := range s.machines {
			s.write(m)
		}
	}
	s.heal()
	for _, m := range s.machines {
		transcript.Eventually(t, m.name+" has all that it has confirmed", func() bool { return s.write(m) })
	}
	for name, n := range most() {
		if n > 1 {
			t.Errorf("%s ran %d times at once", name, n)
		}
	}
	sent, durable := 0, 0
	for _, m := range s.machines {
		sent, durable = sent+m.next, durable+len(m.durable)
	}
	t.Logf("%d numbers were sent, machines with a disk have confirmed %d; %v", sent, durable, s.counts)
	s.u.kubectl(t, "delete", "vm", "--all", "--timeout", transcript.WaitTimeout.String())
	if left := s.u.kubectl(t, "get", "pods,secrets,pvc,pv", "--selector", ofMachines, "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
	s.u.Until(t, "their volumes are deleted", transcript.Is(""), "kubectl", "get", "pv", "-o", "name")
}

// begin starts the nodes, and n machines on them.
func (s *soak) begin(n int) {
	s.up()
	s.u.apply(s.T, env.SmallRequests(20))
	trial := s.u.Shell
	trial.Stdin = `{apiVersion: v1, kind: Pod, metadata: {name: trial}, spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 1}}}]}}`
	trial.Until(s.T, "the policy is in force", transcript.Is("20m"), "kubectl", "create", "--dry-run=server", "-f", "-",
		"-o", "jsonpath={.spec.containers[0].resources.requests.cpu}")
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.u.Env["KUBECONFIG"]); err != nil {
		s.Fatal(err)
	}
	for i := range n {
		m := &soaked{name: fmt.Sprintf("soak-%d", i), keeps: i%2 == 0}
		disk := ""
		if m.keeps {
			disk = ", rootDisk: 64Mi"
		}
		s.u.apply(s.T, fmt.Sprintf(soakedMachine, i, disk))
		m.uid = s.u.field(s.T, "vm/"+m.name, "{.metadata.uid}")
		s.machines = append(s.machines, m)
	}
	s.await()
}

// await waits until all machines are ready.
func (s *soak) await() {
	s.Helper()
	for _, m := range s.machines {
		s.u.kubectl(s.T, "wait", "--for=condition=Ready", "vm", m.name, "--timeout", transcript.WaitTimeout.String())
	}
}

func (s *soak) up() {
	s.u.OK(s.T, "keelson", "up", "--detach", "--node=real", "--nodes="+strconv.Itoa(soakNodes), "--vm-driver=pod", "--data-dir", s.u.data)
}

// pause lets some time go by.
func (s *soak) pause(most time.Duration) {
	time.Sleep(time.Duration(s.random.Int64N(int64(most)))) //nolint:forbidigo // a random delay is the point
}

// heal waits until all machines run. A change of the spec resets their backoff.
func (s *soak) heal() {
	s.u.kubectl(s.T, "wait", "--for=condition=Ready", "node", "--all", "--timeout", transcript.WaitTimeout.String())
	for _, m := range s.machines {
		s.u.kubectl(s.T, "patch", "vm", m.name, "--type=merge", "-p", `{"spec":{"action":"active","terminationGracePeriodSeconds":4}}`)
	}
	s.await()
}

// write has a machine write the next number. If it confirms that, its file has all numbers that it has confirmed before, in their order;
// it reports whether it did.
func (s *soak) write(m *soaked) bool {
	s.Helper()
	m.next++
	answer, err := s.get(m.name, fmt.Sprintf("/cgi-bin/add?%d", m.next))
	header, body, found := strings.Cut(answer, "\n\n")
	if err != nil || !found || !strings.HasPrefix(header, "HTTP/1.0 200") && !strings.HasPrefix(header, "HTTP/1.1 200") {
		return false // it is off, or starts
	}
	var has []int
	for word := range strings.FieldsSeq(body) {
		number, err := strconv.Atoi(word)
		if err != nil {
			s.Errorf("the file of %s has the line %q", m.name, word)
		}
		has = append(has, number)
	}
	if len(has) == 0 || has[len(has)-1] != m.next {
		return false // the connection ended before
	}
	if !m.keeps {
		return true
	}
	m.durable = append(m.durable, m.next)
	for _, number := range m.durable {
		if !slices.Contains(has, number) {
			s.Errorf("%s has lost the number %d: it has %v", m.name, number, has)
		}
	}
	if !slices.IsSorted(has) {
		s.Errorf("%s has %v", m.name, has)
	}
	return true
}

// get returns the whole response of a machine.
func (s *soak) get(name, path string) (string, error) {
	conn, err := client.DialPort(s.Context(), s.config, "default", name, 8080)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // it was read to its end
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(conn)
	return strings.ReplaceAll(string(raw), "\r\n", "\n"), err
}

// watchAll counts the QEMUs of machines. The function that it returns ends that, and returns the highest number of each machine.
func watchAll(t *testing.T, machines []*soaked) func() map[string]int {
	t.Helper()
	most, stop, done := map[string]int{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			now := map[string]int{}
			eachQEMU(func(_ int, arguments []byte) {
				for _, m := range machines {
					if bytes.Contains(arguments, []byte(m.uid)) {
						now[m.name]++
						most[m.name] = max(most[m.name], now[m.name])
					}
				}
			})
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	end := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	return func() map[string]int {
		end()
		return most
	}
}
