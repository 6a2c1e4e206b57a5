package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeGuest is a guest at a known moment; it records how it was asked to end.
type fakeGuest struct {
	hostnameErr error
	ended       []ShutdownMode
	clock       []time.Time
	entropy     [][]byte
	address     string // see Fork
	instance    string
	frozen      bool
}

func (f *fakeGuest) Hostname() (string, error) { return "vm-1", f.hostnameErr }
func (f *fakeGuest) Now() time.Time            { return time.Unix(1, 5) }
func (f *fakeGuest) SetTime(t time.Time) error { f.clock = append(f.clock, t); return nil }
func (f *fakeGuest) Start(b []byte) error      { f.entropy = append(f.entropy, b); return nil }

func (f *fakeGuest) IsFrozen() bool       { return f.frozen }
func (f *fakeGuest) Freeze() (int, error) { f.frozen = true; return 2, nil }
func (f *fakeGuest) Thaw() (int, error)   { f.frozen = false; return 2, nil }

func (f *fakeGuest) Fork(b []byte, address net.HardwareAddr, instance string) error {
	f.instance = instance
	f.entropy, f.address = append(f.entropy, b), address.String()
	return nil
}
func (f *fakeGuest) Shutdown(m ShutdownMode) { f.ended = append(f.ended, m) }

func (f *fakeGuest) OSInfo() (OSInfo, error) {
	return OSInfo{ID: "keelson", KernelRelease: "6.1.0"}, nil
}

func (f *fakeGuest) Interfaces() ([]Interface, error) {
	return []Interface{{
		Name: "eth0", HardwareAddress: "52:54:00:12:34:56",
		Addresses: []Address{{IP: "10.0.2.15", Type: "ipv4", Prefix: 24}},
	}}, nil
}

// channel is a host that has sent all its requests at once.
type channel struct {
	io.Reader
	io.Writer
}

// ask returns everything that the agent answers to the requests.
func ask(t *testing.T, guest Guest, requests string) string {
	t.Helper()
	var answers bytes.Buffer
	if err := Serve(channel{strings.NewReader(requests), &answers}, guest); !errors.Is(err, io.EOF) {
		t.Fatalf("Serve ended with %v instead of io.EOF", err)
	}
	return answers.String()
}

func TestAnswers(t *testing.T) {
	tests := []struct {
		name, request, want string
	}{
		{"ping", `{"execute":"guest-ping"}`, `{"return":{}}`},
		{"ping with an id", `{"execute":"guest-ping","id":{"a":7}}`, `{"return":{},"id":{"a":7}}`},
		{"sync", `{"execute":"guest-sync","arguments":{"id":1234567890123}}`, `{"return":1234567890123}`},
		{"sync with zero", `{"execute":"guest-sync","arguments":{"id":0}}`, `{"return":0}`},
		{"sync, delimited", `{"execute":"guest-sync-delimited","arguments":{"id":5}}`, "\xff" + `{"return":5}`},
		{"sync without a number", `{"execute":"guest-sync"}`, `{"error":{"class":"GenericError","desc":"parameter 'id' is missing"}}`},
		{"host name", `{"execute":"guest-get-host-name"}`, `{"return":{"host-name":"vm-1"}}`},
		{"time in nanoseconds", `{"execute":"guest-get-time"}`, `{"return":1000000005}`},
		{"set the time", `{"execute":"guest-set-time","arguments":{"time":2000000007}}`, `{"return":{}}`},
		{"set no time", `{"execute":"guest-set-time"}`, `{"error":{"class":"GenericError","desc":"parameter 'time' is missing"}}`},
		{"system", `{"execute":"guest-get-osinfo"}`, `{"return":{"kernel-release":"6.1.0","id":"keelson"}}`},
		{"interfaces", `{"execute":"guest-network-get-interfaces"}`,
			`{"return":[{"name":"eth0","hardware-address":"52:54:00:12:34:56","ip-addresses":[{"ip-address":"10.0.2.15","ip-address-type":"ipv4","prefix":24}]}]}`},
		{"unknown command", `{"execute":"guest-exec","id":1}`,
			`{"error":{"class":"CommandNotFound","desc":"The command guest-exec has not been found"},"id":1}`},
		{"no command", `{}`, `{"error":{"class":"GenericError","desc":"the request lacks member 'execute'"}}`},
		{"no request at all", "hello\n", `{"error":{"class":"GenericError","desc":"JSON parse error"}}`},
		{"unknown mode", `{"execute":"guest-shutdown","arguments":{"mode":"explode"}}`,
			`{"error":{"class":"GenericError","desc":"invalid parameter 'mode': it is one of 'powerdown', 'reboot', 'halt'"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			guest := &fakeGuest{}
			if diff := cmp.Diff(tt.want+"\n", ask(t, guest, tt.request)); diff != "" {
				t.Error(diff)
			}
			if len(guest.ended) != 0 {
				t.Errorf("the guest was asked to end: %v", guest.ended)
			}
		})
	}
}

func TestFailingSystem(t *testing.T) {
	got := ask(t, &fakeGuest{hostnameErr: errors.New("no name")}, `{"execute":"guest-get-host-name","id":3}`)
	want := `{"error":{"class":"GenericError","desc":"no name"},"id":3}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestShutdown(t *testing.T) {
	tests := []struct {
		name, request string
		want          ShutdownMode
	}{
		{"without a mode", `{"execute":"guest-shutdown"}`, PowerDown},
		{"power down", `{"execute":"guest-shutdown","arguments":{"mode":"powerdown"}}`, PowerDown},
		{"reboot", `{"execute":"guest-shutdown","arguments":{"mode":"reboot"}}`, Reboot},
		{"halt", `{"execute":"guest-shutdown","arguments":{"mode":"halt"}}`, Halt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			guest := &fakeGuest{}
			if got := ask(t, guest, tt.request); got != "" {
				t.Errorf("answered %q, but success has no answer", got)
			}
			if diff := cmp.Diff([]ShutdownMode{tt.want}, guest.ended); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSetTime(t *testing.T) {
	guest := &fakeGuest{}
	ask(t, guest, `{"execute":"guest-set-time","arguments":{"time":2000000007}}`)
	if len(guest.clock) != 1 || !guest.clock[0].Equal(time.Unix(2, 7)) {
		t.Errorf("the clock was set to %v", guest.clock)
	}
}

func TestStart(t *testing.T) {
	guest := &fakeGuest{}
	for _, tooLittle := range []string{`{}`, `{"entropy":""}`, `{"entropy":"` + base64.StdEncoding.EncodeToString(make([]byte, minimumEntropy-1)) + `"}`} {
		if got := ask(t, guest, `{"execute":"keelson-start","arguments":`+tooLittle+`}`); !strings.Contains(got, "parameter 'entropy'") {
			t.Errorf("with %s: %s", tooLittle, got)
		}
	}
	if len(guest.entropy) != 0 {
		t.Errorf("started with too little entropy: %v", guest.entropy)
	}
	enough := bytes.Repeat([]byte{7}, minimumEntropy)
	ask(t, guest, `{"execute":"keelson-start","arguments":{"entropy":"`+base64.StdEncoding.EncodeToString(enough)+`"}}`)
	if diff := cmp.Diff([][]byte{enough}, guest.entropy); diff != "" {
		t.Error(diff)
	}
}

func TestFreeze(t *testing.T) {
	guest := &fakeGuest{}
	for _, call := range []struct{ command, want string }{
		{"status", `"thawed"`}, {"freeze", "2"}, {"status", `"frozen"`}, {"thaw", "2"}, {"status", `"thawed"`},
	} {
		if got := ask(t, guest, `{"execute":"guest-fsfreeze-`+call.command+`"}`); !strings.Contains(got, `"return":`+call.want) {
			t.Errorf("%s: %s, want %s", call.command, got, call.want)
		}
	}
}

func TestFork(t *testing.T) {
	guest := &fakeGuest{}
	enough := `"entropy":"` + base64.StdEncoding.EncodeToString(make([]byte, minimumEntropy)) + `"`
	for arguments, says := range map[string]string{
		`"hardware-address":"52:54:00:00:00:01"`: "parameter 'entropy'",
		enough:                                   "parameter 'hardware-address'",
		enough + `,"hardware-address":"52:54:00:00:00:00:00:01"`: "parameter 'hardware-address'",
	} {
		if got := ask(t, guest, `{"execute":"keelson-fork","arguments":{`+arguments+`}}`); !strings.Contains(got, says) || guest.address != "" {
			t.Errorf("with %s: %s, want %q; the address is %q", arguments, got, says, guest.address)
		}
	}
	ask(t, guest, `{"execute":"keelson-fork","arguments":{`+enough+`,"hardware-address":"52:54:00:00:00:01"}}`)
	if len(guest.entropy) != 1 || guest.address != "52:54:00:00:00:01" || guest.instance != "" {
		t.Errorf("forked with %v, %q and %q", guest.entropy, guest.address, guest.instance)
	}
	ask(t, guest, `{"execute":"keelson-fork","arguments":{`+enough+`,"hardware-address":"52:54:00:00:00:01","instance-id":"another"}}`)
	if len(guest.entropy) != 2 || guest.instance != "another" {
		t.Errorf("forked with %v and %q", guest.entropy, guest.instance)
	}
}

// A host has to learn from guest-info what there is, so nothing may be missing there.
func TestInfoNamesEveryCommand(t *testing.T) {
	var got struct {
		Return struct {
			Version  string        `json:"version"`
			Commands []commandInfo `json:"supported_commands"`
		} `json:"return"`
	}
	if err := json.Unmarshal([]byte(ask(t, &fakeGuest{}, `{"execute":"guest-info"}`)), &got); err != nil {
		t.Fatal(err)
	}
	want := []commandInfo{
		{"guest-fsfreeze-freeze", true, true},
		{"guest-fsfreeze-status", true, true},
		{"guest-fsfreeze-thaw", true, true},
		{"guest-get-host-name", true, true},
		{"guest-get-osinfo", true, true},
		{"guest-get-time", true, true},
		{"guest-info", true, true},
		{"guest-network-get-interfaces", true, true},
		{"guest-ping", true, true},
		{"guest-set-time", true, true},
		{"guest-shutdown", true, false},
		{"guest-sync", true, true},
		{"guest-sync-delimited", true, true},
		{"keelson-fork", true, true},
		{"keelson-start", true, true},
	}
	if diff := cmp.Diff(want, got.Return.Commands); diff != "" {
		t.Error(diff)
	}
}

// Whatever a host sends, the agent ends with the stream, every answer is a line of
// JSON, and after a sentinel a ping is answered.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"execute":"guest-info"}`))
	f.Add([]byte(`{"execute":"guest-sync-delimited","arguments":{"id":1}}`))
	f.Add([]byte("{\"a\":\"\n\xff{{[\\\"\""))
	f.Add([]byte(`{"execute":"guest-shutdown","arguments":{"mode":7}}{"return":1}`))
	f.Fuzz(func(t *testing.T, requests []byte) {
		answers := ask(t, &fakeGuest{}, string(requests)+"\xff\n"+`{"execute":"guest-ping","id":"last"}`)
		lines := strings.Split(strings.TrimSuffix(answers, "\n"), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(strings.TrimPrefix(line, "\xff"))) {
				t.Fatalf("answered %q, which is no JSON", line)
			}
		}
		if last := lines[len(lines)-1]; last != `{"return":{},"id":"last"}` {
			t.Errorf("the ping after the sentinel got %q", last)
		}
	})
}
