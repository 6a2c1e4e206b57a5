package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson/node/internal/fair"
	"github.com/keelson-dev/keelson/node/internal/handover"
)

func TestParseServiceName(t *testing.T) {
	for _, test := range []struct {
		text string
		want serviceName
		ok   bool
	}{
		{"shop.default.svc.cluster.local.", serviceName{namespace: "default", name: "shop"}, true},
		{"Shop.Default.SVC.cluster.local.", serviceName{namespace: "default", name: "shop"}, true},
		{"web-0.web.prod.svc.cluster.local.", serviceName{namespace: "prod", name: "web", host: "web-0"}, true},
		{"_http._tcp.shop.default.svc.cluster.local.", serviceName{namespace: "default", name: "shop", port: "http", protocol: "tcp"}, true},
		{"http.tcp.shop.default.svc.cluster.local.", serviceName{}, false},
		{"_http.tcp.shop.default.svc.cluster.local.", serviceName{}, false},
		{"default.svc.cluster.local.", serviceName{}, false},
		{"a.b.c.d.e.svc.cluster.local.", serviceName{}, false},
		{"example.com.cluster.local.", serviceName{}, false},
		{"shop.default.svc.cluster.local.example.com.", serviceName{}, false},
		{"cluster.local.", serviceName{}, false},
	} {
		got, ok := parseServiceName(test.text)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%s: got %+v, %v", test.text, got, ok)
		}
	}
	for _, odd := range []string{"a/b", "a%2fb", "-a", "a-", "", "a b", "a=b,c"} {
		if _, ok := parseServiceName(odd + ".default.svc.cluster.local."); ok {
			t.Errorf("%q is no name of a Service", odd)
		}
	}
}

func TestParseReverse(t *testing.T) {
	for name, want := range map[string]string{
		"7.0.96.10.in-addr.arpa.": "10.96.0.7", "7.0.96.10.IN-ADDR.arpa.": "10.96.0.7", "0.96.10.in-addr.arpa.": "", "1.7.0.96.10.in-addr.arpa.": "",
		"007.0.96.10.in-addr.arpa.": "", "in-addr.arpa.": "", "7.0.96.10.example.com.": "",
		"7.0.0.0." + strings.Repeat("0.", 16) + "0.6.a.0.c.6.5.6.b.6.d.f.ip6.arpa.": "fd6b:656c:a60::7", "7.0.ip6.arpa.": "",
		"x." + strings.Repeat("0.", 31) + "ip6.arpa.": "", "00." + strings.Repeat("0.", 31) + "ip6.arpa.": "",
	} {
		if got, ok := parseReverse(name); ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s: %v, %v, want %s", name, got, ok, want)
		}
	}
}

func TestInCluster(t *testing.T) {
	for name, want := range map[string]bool{
		"shop.default.svc.cluster.local.": true, "CLUSTER.local.": true, "example.com.": false, "mycluster.local.": false, "cluster.local.example.com.": false,
	} {
		if got := inCluster(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

const (
	plainService    = `{"metadata": {"namespace": "default", "name": "plain"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`
	headlessService = `{"metadata": {"namespace": "default", "name": "many"}, "spec": {"type": "ClusterIP", "clusterIP": "None"}}`
	externalService = `{"metadata": {"namespace": "default", "name": "elsewhere"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}`
	endpointsOfTwo  = `{"addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": [
		{"addresses": ["10.100.0.4"], "hostname": "web-0", "conditions": {"ready": true}},
		{"addresses": ["10.100.0.5"], "conditions": {}},
		{"addresses": ["10.100.0.6"], "hostname": "web-2", "conditions": {"ready": false}}]}`
)

func TestAnswer(t *testing.T) {
	addresses := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for _, test := range []struct {
		name, service string
		asked         serviceName
		want          answers
	}{
		{"a Service", plainService, serviceName{}, answers{exists: true, addresses: addresses("10.96.0.7")}},
		{
			"a Service of both families", strings.Replace(plainService, `["10.96.0.7"]`, `["10.96.0.7", "fd6b:656c:a60::7"]`, 1), serviceName{},
			answers{exists: true, addresses: addresses("10.96.0.7", "fd6b:656c:a60::7")},
		},
		{"its port", plainService, serviceName{port: "http", protocol: "tcp"}, answers{exists: true, ports: []port{{"web.default.svc.cluster.local.", 80}}}},
		{"a port that it has not", plainService, serviceName{port: "https", protocol: "tcp"}, answers{}},
		{"a port by another protocol", plainService, serviceName{port: "http", protocol: "udp"}, answers{}},
		{"its Pods have no names", plainService, serviceName{host: "web-0"}, answers{}},
		{"a headless Service: the Pods that are ready", headlessService, serviceName{}, answers{exists: true, addresses: addresses("10.100.0.4", "10.100.0.5")}},
		{"one of its Pods", headlessService, serviceName{host: "web-0"}, answers{exists: true, addresses: addresses("10.100.0.4")}},
		{"a Pod without a name", headlessService, serviceName{host: "10-100-0-5"}, answers{exists: true, addresses: addresses("10.100.0.5")}},
		{"a Pod that is not ready", headlessService, serviceName{host: "web-2"}, answers{}},
		{
			"also those that are not ready", `{"spec": {"clusterIP": "None", "publishNotReadyAddresses": true}}`, serviceName{host: "web-2"},
			answers{exists: true, addresses: addresses("10.100.0.6")},
		},
		{
			"the ports of its Pods", headlessService, serviceName{port: "http", protocol: "tcp"},
			answers{exists: true, ports: []port{{"web-0.web.default.svc.cluster.local.", 8080}, {"10-100-0-5.web.default.svc.cluster.local.", 8080}}},
		},
		{"another name", externalService, serviceName{}, answers{exists: true, canonical: "example.com."}},
		{"a host of another name", externalService, serviceName{host: "web-0"}, answers{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s corev1.Service
			var slice discoveryv1.EndpointSlice
			if err := errors.Join(json.Unmarshal([]byte(test.service), &s), json.Unmarshal([]byte(endpointsOfTwo), &slice)); err != nil {
				t.Fatal(err)
			}
			test.asked.namespace, test.asked.name = "default", "web"
			if got := answer(test.asked, &s, []*discoveryv1.EndpointSlice{&slice}); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestParseServers(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"two", "search example.com\nnameserver 192.0.2.1\nnameserver 127.0.0.53\n", []string{"192.0.2.1:53", "127.0.0.53:53"}},
		{"version 6", "nameserver fe80::1%eth0\n", []string{"[fe80::1%eth0]:53"}},
		{"nonsense", "nameserver\nnameserver one\n# nameserver 192.0.2.1\n", []string{"127.0.0.1:53"}},
		{"nothing", "", []string{"127.0.0.1:53"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseServers(strings.NewReader(test.text))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// newTestAPI plays the API, with the three Services plain, many and elsewhere in the namespace default.
func newTestAPI(t *testing.T) *httptest.Server {
	t.Helper()
	var endpoints []string
	for i := range 100 {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses": ["10.100.0.%d"]}`, i+1))
	}
	lists := map[string]string{
		"/api/v1/services": fmt.Sprintf(`{"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [%s, %s, %s]}`,
			plainService, headlessService, externalService),
		"/apis/discovery.k8s.io/v1/endpointslices": fmt.Sprintf(`{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": {"resourceVersion": "1"},
			"items": [{"metadata": {"namespace": "default", "name": "many-1", "labels": {"kubernetes.io/service-name": "many"}}, "endpoints": [%s]}]}`,
			strings.Join(endpoints, ",")),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case query.Has("sendInitialEvents"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)
		case query.Has("watch"):
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // nothing changes
		default:
			fmt.Fprint(w, lists[r.URL.Path])
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// serveNames serves names by UDP and TCP on loopback, and returns a client that asks there only.
func serveNames(t *testing.T, n *names) *net.Resolver {
	t.Helper()
	at := startNames(t, n)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at.String())
	}}
}

// startNames serves names by UDP and TCP on loopback, and returns where.
func startNames(t *testing.T, n *names) net.Addr {
	t.Helper()
	sockets, l := listenBoth(t)
	var all sync.WaitGroup
	for _, socket := range sockets {
		all.Go(func() { n.serveUDP(socket) })
	}
	all.Go(func() { serveEach(l, n.serveTCP) })
	t.Cleanup(func() {
		_ = (&handover.Sockets{Names: sockets, NamesTCP: l}).Close()
		all.Wait()
	})
	return l.Addr()
}

// listenBoth listens on the same port of loopback by UDP and TCP.
func listenBoth(t *testing.T) ([]net.PacketConn, net.Listener) {
	t.Helper()
	for attempt := 0; ; attempt++ {
		sockets, err := fair.ListenUDP("127.0.0.1:0", 16)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", sockets[0].LocalAddr().String())
		if err == nil {
			return sockets, l
		}
		_ = (&handover.Sockets{Names: sockets}).Close() // another program has that port by TCP
		if attempt > 20 {
			t.Fatal(err)
		}
	}
}

// newTestNames returns names of an API, with the machine's servers.
func newTestNames(t *testing.T, api string, servers ...string) *names {
	t.Helper()
	c, err := newClusterAt(&rest.Config{Host: api})
	if err != nil {
		t.Fatal(err)
	}
	go c.run(t.Context())
	return &names{
		cluster: c,
		servers: func() ([]string, error) { return servers, nil },
		outside: newShares(maxForwarded),
	}
}

// newSyncedNames returns names whose cache is complete.
func newSyncedNames(t *testing.T, servers ...string) (*names, *httptest.Server) {
	t.Helper()
	api := newTestAPI(t)
	n := newTestNames(t, api.URL, servers...)
	if !cache.WaitForCacheSync(t.Context().Done(), n.cluster.services.HasSynced, n.cluster.slices.HasSynced) {
		t.Fatal("the cache is not filled")
	}
	return n, api
}

// plainName is that of the Service plain.
const plainName = "plain.default.svc.cluster.local."

func TestNamesWhileTheAPIIsAway(t *testing.T) {
	n, api := newSyncedNames(t)
	client := serveNames(t, n)
	if got, err := client.LookupHost(t.Context(), "nobody.default.svc.cluster.local."); !isNotFound(err) {
		t.Errorf("before, a Service that does not exist: %q, %v", got, err)
	}
	api.CloseClientConnections()
	api.Close()
	for !n.cluster.services.away.Load() {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if got, err := client.LookupHost(t.Context(), plainName); err != nil || !slices.Equal(got, []string{"10.96.0.7"}) {
		t.Errorf("a Service: %q, %v", got, err)
	}
	if got, err := n.cluster.lookUp("new.default.svc.cluster.local."); !errors.Is(err, errUnknown) {
		t.Errorf("a Service that may be new: %+v, %v", got, err)
	}
	if got, err := client.LookupHost(t.Context(), "new.default.svc.cluster.local."); err == nil || isNotFound(err) {
		t.Errorf("a Service that may be new: %q, %v", got, err)
	}
}

// A node starts while the API is away.
func TestNamesWithoutACache(t *testing.T) {
	n := newTestNames(t, "http://127.0.0.1:1")
	if got, err := n.cluster.lookUp(plainName); !errors.Is(err, errUnknown) {
		t.Errorf("%+v, %v", got, err)
	}
}

// isNotFound reports whether a server has said that a name does not exist.
func isNotFound(err error) bool {
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound
}

// Too many questions about other names wait for the machine's servers.
func TestServicesHaveNamesAllTheSame(t *testing.T) {
	n, _ := newSyncedNames(t, serveFixed(t))
	n.outside = newShares(0)
	client := serveNames(t, n)
	if got, err := client.LookupHost(t.Context(), plainName); err != nil || !slices.Equal(got, []string{"10.96.0.7"}) {
		t.Errorf("a Service: %q, %v", got, err)
	}
	var failed *net.DNSError
	if got, err := client.LookupHost(t.Context(), "example.com."); !errors.As(err, &failed) || failed.IsNotFound {
		t.Errorf("another name: %q, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	// Of the machine's two servers the first one does not run.
	n, _ := newSyncedNames(t, "127.0.0.1:1", serveFixed(t))
	client := serveNames(t, n)
	ctx := t.Context()
	if got, err := client.LookupHost(ctx, plainName); err != nil || !slices.Equal(got, []string{"10.96.0.7"}) {
		t.Errorf("a Service: %q, %v", got, err)
	}
	if got, err := client.LookupHost(ctx, "many.default.svc.cluster.local."); err != nil || len(got) != 100 {
		t.Errorf("a headless Service: %d addresses, %v", len(got), err)
	}
	if _, got, err := client.LookupSRV(ctx, "http", "tcp", "plain.default.svc.cluster.local."); err != nil || len(got) != 1 || got[0].Port != 80 {
		t.Errorf("a port: %v, %v", got, err)
	}
	for address, want := range map[string]string{"10.96.0.7": plainName, "10.100.0.5": "10-100-0-5.many.default.svc.cluster.local."} {
		if got, err := client.LookupAddr(ctx, address); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("the names of %s: %q, %v", address, got, err)
		}
	}
	for _, name := range []string{"example.com.", "elsewhere.default.svc.cluster.local."} {
		if got, err := client.LookupHost(ctx, name); err != nil || !slices.Equal(got, []string{"192.0.2.7"}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"nobody.default.svc.cluster.local.", "example.com.cluster.local."} {
		if got, err := client.LookupHost(ctx, name); !isNotFound(err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// serveFixed serves one address for every name, and returns where.
func serveFixed(t *testing.T) string {
	t.Helper()
	sockets, l := listenBoth(t)
	reply := func(message []byte) []byte {
		var p dnsmessage.Parser
		header, err := p.Start(message)
		if err != nil {
			return nil
		}
		question, err := p.Question()
		if err != nil {
			return nil
		}
		return pack(header, &question, answers{exists: true, addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}, dnsmessage.RCodeSuccess)
	}
	var all sync.WaitGroup
	for _, socket := range sockets {
		all.Go(func() {
			buffer := make([]byte, maxQuestion)
			for {
				n, from, err := socket.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = socket.WriteTo(reply(buffer[:n]), from)
			}
		})
	}
	all.Go(func() {
		serveEach(l, func(c net.Conn) {
			defer func() { _ = c.Close() }()
			if message, err := readMessage(c); err == nil {
				_ = writeMessage(c, reply(message))
			}
		})
	})
	t.Cleanup(func() {
		_ = (&handover.Sockets{Names: sockets, NamesTCP: l}).Close()
		all.Wait()
	})
	return l.Addr().String()
}

func TestNoServerAnswers(t *testing.T) {
	n, _ := newSyncedNames(t, "127.0.0.1:1")
	client := serveNames(t, n)
	var failed *net.DNSError
	if got, err := client.LookupHost(t.Context(), "example.com."); !errors.As(err, &failed) || failed.IsNotFound {
		t.Errorf("%q, %v, want a failure of the server", got, err)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	n := newTestNames(t, "http://127.0.0.1:1", "127.0.0.1:1")
	said, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	empty, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for name, message := range map[string][]byte{"an answer": said, "nonsense": []byte("hello"), "nothing": nil} {
		if got := n.answer(testFlow.from.Addr(), "udp", message); got != nil {
			t.Errorf("%s is answered by %x", name, got)
		}
	}
	var p dnsmessage.Parser
	if header, err := p.Start(n.answer(testFlow.from.Addr(), "udp", empty)); err != nil || header.RCode != dnsmessage.RCodeFormatError || header.ID != 7 {
		t.Errorf("a message without a question: %+v, %v", header, err)
	}
}
