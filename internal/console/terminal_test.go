package console_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/access/client"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// guest answers for the access API: its machine echoes each line, and has a log of one line. The rest goes to the API of
// config.
type guest struct {
	config *rest.Config
	// refusal is the answer to everybody who wants the console, if it is set.
	refusal string
	// queries receives the query of each session.
	queries chan url.Values
}

func (g *guest) start(t *testing.T) *rest.Config {
	t.Helper()
	target, _, err := rest.DefaultServerUrlFor(g.config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(g.config)
	if err != nil {
		t.Fatal(err)
	}
	g.queries = make(chan url.Values, 100)
	mux := http.NewServeMux()
	machine := "GET /apis/" + client.Group + "/" + client.Version + "/namespaces/{namespace}/virtualmachines/{name}/"
	mux.HandleFunc(machine+client.Console, g.console)
	mux.HandleFunc(machine+client.Screen, g.console)
	mux.HandleFunc(machine+client.Screenshot, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte("\x89PNG"))
	})
	// Each Cluster is the API itself.
	mux.Handle("/apis/"+client.Group+"/"+client.Version+"/clusters/{name}/proxy/", &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		_, path, _ := strings.Cut(r.In.URL.Path, "/proxy")
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, path
	}})
	mux.HandleFunc(machine+client.Log, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, "\x1b[32mGuest %s is up\x1b[0m\r\n", r.PathValue("name"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc(machine+client.Usage, func(w http.ResponseWriter, _ *http.Request) {
		usage := client.MachineUsage{IntervalSeconds: 15}
		now := time.Now()
		for i := range 240 {
			usage.UnixMilliseconds = append(usage.UnixMilliseconds, now.Add(time.Duration(i-239)*15*time.Second).UnixMilli())
			wave := 40 + 35*math.Sin(float64(i)/20)
			usage.CPUPercent = append(usage.CPUPercent, wave)
			usage.MemoryPercent = append(usage.MemoryPercent, 20+wave/10)
			usage.DiskReadBytesPerSecond = append(usage.DiskReadBytesPerSecond, math.NaN())
			usage.DiskWrittenBytesPerSecond = append(usage.DiskWrittenBytesPerSecond, 1e4*wave)
			usage.NetworkReceivedBytesPerSecond = append(usage.NetworkReceivedBytesPerSecond, 3e5*wave)
			usage.NetworkTransmittedBytesPerSecond = append(usage.NetworkTransmittedBytesPerSecond, 1e5*wave)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(usage)
	})
	mux.Handle("/", &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	mux.Handle("GET /apis", &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Accept-Encoding")
	}, ModifyResponse: addAccess})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return &rest.Config{Host: server.URL}
}

// addAccess adds the group of the access API to a discovery.
func addAccess(r *http.Response) error {
	var list discoveryv2.APIGroupDiscoveryList
	if err := errors.Join(json.NewDecoder(r.Body).Decode(&list), r.Body.Close()); err != nil {
		return err
	}
	list.Items = append(list.Items, discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: client.Group}})
	raw, err := json.Marshal(list)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	r.Header.Del("Content-Length")
	return err
}

func (g *guest) console(w http.ResponseWriter, r *http.Request) {
	if g.refusal != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"message":%q}`, g.refusal)
		return
	}
	socket, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = socket.CloseNow() }()
	g.queries <- r.URL.Query()
	notice, _ := json.Marshal(client.Notice{Writer: true})
	say := func(kind websocket.MessageType, text string) bool {
		return socket.Write(r.Context(), kind, []byte(text)) == nil
	}
	if !say(websocket.MessageText, string(notice)) || !say(websocket.MessageBinary, "login: ") {
		return
	}
	line := ""
	for {
		_, raw, err := socket.Read(r.Context())
		if err != nil {
			return
		}
		line += string(raw)
		if strings.HasSuffix(line, "\r") {
			if line == "exit\r" {
				_ = socket.Close(client.CloseGone, "The machine was deleted.")
				return
			}
			say(websocket.MessageBinary, "\x1b[38;2;10;200;30mechoed\x1b[0m "+strings.TrimSpace(line)+"\r\n")
			line = ""
		}
	}
}

// screen is the text in the terminal.
const screen = `(document.querySelector(".xterm-rows")?.textContent ?? "").replaceAll("\u00a0", " ")`

// openMachine opens a part of the page of a machine of w, in a tab that is closed before the console.
func openMachine(t *testing.T, w *world, g *guest, name, part string) *browser.Tab {
	t.Helper()
	b := openPage(t, g.start(t), "/virtualmachines/"+w.namespace+"/"+name)
	b.Unfold(part)
	return b
}

func TestTerminal(t *testing.T) {
	w := newWorld(t)
	b := openMachine(t, w, &guest{config: w.config}, "web", "Serial console")
	b.Until(screen + `.includes("login: ")`)
	b.Sees("You type into the machine")
	b.Type("who am i?\r")
	b.Until(screen + `.includes("echoed who am i?")`)
	b.Accessible()
	b.Keep("terminal")
	b.Type("/gm?\r") // keys of the page stay in the terminal
	b.Until(screen + `.includes("echoed /gm?") && location.pathname.endsWith("/web")`)
	// A paste may be longer than a message.
	browser.Value[bool](b, `(() => {
		const pasted = new DataTransfer();
		pasted.setData("text/plain", "x".repeat(20_000) + "pasted\r");
		document.querySelector(".xterm-helper-textarea").dispatchEvent(new ClipboardEvent("paste", {clipboardData: pasted, bubbles: true}));
		return true;
	})()`)
	b.Until(screen + `.includes("xpasted")`)
	b.Type("exit\r")
	b.Sees("The machine was deleted.")
	b.Click("Connect again")
	b.Sees("You type into the machine")
}

func TestTerminalThatIsRefused(t *testing.T) {
	w := newWorld(t)
	b := openMachine(t, w, &guest{config: w.config, refusal: "VirtualMachine is not running: start it first"}, "old", "Serial console")
	b.Sees("is not running: start it first")
}

func TestSerialLog(t *testing.T) {
	w := newWorld(t)
	b := openMachine(t, w, &guest{config: w.config}, "web", "Serial log")
	b.Sees("Guest web is up", "The log continues here")
	b.Until(`!document.querySelector(".log").textContent.includes("[32m")`)
}

// The list of machines shows the usage of those that run, where the API serves it.
func TestUsageInTheList(t *testing.T) {
	w := newWorld(t)
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
	eventually(w, machine, func(*vmv1alpha1.VirtualMachine) bool { return true })
	machine.Status.PrintableStatus = "Running"
	if err := w.client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	b := openPage(t, (&guest{config: w.config}).start(t), "/virtualmachines?namespace="+w.namespace)
	b.Until(`document.querySelectorAll("svg.spark path").length === 1 && document.querySelector("svg.spark path").getAttribute("d").length > 500`)
	b.Accessible()
	b.Keep("sparks")
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	b := openMachine(t, w, &guest{config: w.config}, "web", "Usage in the last hour")
	b.Sees("Processors", "read unknown", "MB/s")
	b.Until(`document.querySelectorAll("figure canvas").length === 4`)
	b.Accessible()
	b.Keep("usage")
}

func TestAccessWithoutPermission(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "jane"
	w.allow("jane", "virtualmachines")
	b := openPage(t, (&guest{config: config}).start(t), "/virtualmachines/"+w.namespace+"/web", "403")
	b.Unfold("Serial console")
	b.Sees("You may not get virtualmachines/console in " + w.namespace)
}

// TestTerminalRequests sends what the page does not send.
func TestTerminalRequests(t *testing.T) {
	g := &guest{config: &rest.Config{Host: "http://127.0.0.1:1"}}
	v := &visitor{t: t, c: serve(t, g.start(t))}
	v.login(token(v.c.URL()))
	for _, path := range []string{"/terminal/default/%2e%2e%2fsecrets", "/terminal/default/UPPER", "/terminal/default/web%3fa"} {
		if got := v.send(http.MethodGet, path, nil, nil); got.code != http.StatusBadRequest {
			t.Errorf("GET %s: %d", path, got.code)
		}
	}
	dial := func(key string) (*websocket.Conn, error) {
		socket, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(v.c.Address(), "http")+"/terminal/default/web?write=false&tail=9", //nolint:bodyclose // it is the connection's
			&websocket.DialOptions{Subprotocols: []string{"keelson-terminal", key}, HTTPHeader: http.Header{"Cookie": {v.cookie}, "Origin": {v.c.Address()}}})
		return socket, err
	}
	if _, err := dial("guess"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("With the cookie only: %v", err)
	}
	socket, err := dial(v.key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	if query := <-g.queries; query.Encode() != "write=false" {
		t.Errorf("The query of the session is %q", query.Encode())
	}
}
