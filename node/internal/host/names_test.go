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
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
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
	plainService    = `{"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}`
	headlessService = `{"spec": {"type": "ClusterIP", "clusterIP": "None"}}`
	externalService = `{"spec": {"type": "ExternalName", "externalName": "example.com"}}`
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
			var s service
			var slice endpointSlice
			if err := errors.Join(json.Unmarshal([]byte(test.service), &s), json.Unmarshal([]byte(endpointsOfTwo), &slice)); err != nil {
				t.Fatal(err)
			}
			test.asked.namespace, test.asked.name = "default", "web"
			if got := answer(test.asked, s, []endpointSlice{slice}); !reflect.DeepEqual(got, test.want) {
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

// newAPI plays the API, with the three Services plain, many and elsewhere in the namespace default.
func newAPI(t *testing.T) *httptest.Server {
	t.Helper()
	var endpoints []string
	for i := range 100 {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses": ["10.100.0.%d"]}`, i+1))
	}
	items := map[string]string{
		"/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Dplain":     plainService,
		"/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Dmany":      headlessService,
		"/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Delsewhere": externalService,
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dmany": fmt.Sprintf(
			`{"endpoints": [%s]}`, strings.Join(endpoints, ",")),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/forbidden/") {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"items": [%s]}`, items[r.URL.RequestURI()])
	}))
	t.Cleanup(server.Close)
	return server
}

// serveNames serves names by UDP and TCP on loopback, and returns a client that asks there only.
func serveNames(t *testing.T, n *names) *net.Resolver {
	t.Helper()
	socket, l := listenBoth(t)
	done := make(chan struct{}, 2)
	go func() { n.serveUDP(socket); done <- struct{}{} }()
	go func() { serveEach(l, n.serveTCP); done <- struct{}{} }()
	t.Cleanup(func() {
		_, _ = socket.Close(), l.Close()
		<-done
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, socket.LocalAddr().String())
	}}
}

// listenBoth listens on the same port of loopback by UDP and TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for attempt := 0; ; attempt++ {
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", socket.LocalAddr().String())
		if err == nil {
			return socket, l
		}
		_ = socket.Close() // another program has that port by TCP
		if attempt > 20 {
			t.Fatal(err)
		}
	}
}

// newTestNames returns names of an API, with the machine's servers.
func newTestNames(api string, servers ...string) *names {
	return &names{
		cluster: &cluster{client: http.DefaultClient, server: api, kept: map[serviceName]keptAnswers{}},
		servers: func() ([]string, error) { return servers, nil },
		slots:   make(chan struct{}, maxQuestions),
		outside: newShares(maxForwarded),
	}
}

// plainName is that of the Service plain.
const plainName = "plain.default.svc.cluster.local."

func TestNamesAreKept(t *testing.T) {
	api := newAPI(t)
	client := serveNames(t, newTestNames(api.URL))
	for _, when := range []string{"from the API", "without it"} {
		if got, err := client.LookupHost(t.Context(), plainName); err != nil || !slices.Equal(got, []string{"10.96.0.7"}) {
			t.Errorf("%s: %q, %v", when, got, err)
		}
		api.Close()
	}
}

// Too many questions about other names wait for the machine's servers.
func TestServicesHaveNamesAllTheSame(t *testing.T) {
	n := newTestNames(newAPI(t).URL, serveFixed(t))
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
	client := serveNames(t, newTestNames(newAPI(t).URL, "127.0.0.1:1", serveFixed(t)))
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
	for _, name := range []string{"example.com.", "elsewhere.default.svc.cluster.local."} {
		if got, err := client.LookupHost(ctx, name); err != nil || !slices.Equal(got, []string{"192.0.2.7"}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, missing := range map[string]bool{
		"nobody.default.svc.cluster.local.":  true,
		"example.com.cluster.local.":         true,
		"plain.forbidden.svc.cluster.local.": false, // the API does not say
	} {
		var failed *net.DNSError
		if got, err := client.LookupHost(ctx, name); !errors.As(err, &failed) || failed.IsNotFound != missing {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// serveFixed serves one address for every name, and returns where.
func serveFixed(t *testing.T) string {
	t.Helper()
	socket, l := listenBoth(t)
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
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(reply(buffer[:n]), from)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		serveEach(l, func(c net.Conn) {
			defer func() { _ = c.Close() }()
			if message, err := readMessage(c); err == nil {
				_ = writeMessage(c, reply(message))
			}
		})
	}()
	t.Cleanup(func() {
		_, _ = socket.Close(), l.Close()
		<-done
		<-done
	})
	return socket.LocalAddr().String()
}

func TestNoServerAnswers(t *testing.T) {
	client := serveNames(t, newTestNames(newAPI(t).URL, "127.0.0.1:1"))
	var failed *net.DNSError
	if got, err := client.LookupHost(t.Context(), "example.com."); !errors.As(err, &failed) || failed.IsNotFound {
		t.Errorf("%q, %v, want a failure of the server", got, err)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	n := newTestNames("", "127.0.0.1:1")
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
