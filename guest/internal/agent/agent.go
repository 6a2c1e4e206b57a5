// Package agent answers the QEMU guest agent protocol, the part that a host needs to
// know how its guest is and to stop it:
// https://www.qemu.org/docs/master/interop/qemu-ga-ref.html. It runs no commands and
// opens no files for the host.
package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// Version is what guest-info tells of this agent.
const Version = "keelson-guest 1"

// Guest is what the agent asks of the system that it runs in.
type Guest interface {
	// Hostname returns the name of the guest.
	Hostname() (string, error)
	// Interfaces returns the network interfaces, with their addresses.
	Interfaces() ([]Interface, error)
	// OSInfo says which system this is.
	OSInfo() (OSInfo, error)
	// Now returns the guest's time.
	Now() time.Time
	// SetTime sets the guest's clock.
	SetTime(time.Time) error
	// Start makes the machine of a guest that was started from a template: it reseeds the random number generator with
	// entropy, and lets the guest apply its seed. Any other guest is only reseeded.
	Start(entropy []byte) error
	// Fork makes a guest that was copied with its memory another machine: it reseeds the random number generator with
	// entropy, gives the network interface the address, and applies the seed of the machine, which has to be that of the
	// instance, unless that is empty. It may be repeated.
	Fork(entropy []byte, address net.HardwareAddr, instance string) error
	// Freeze freezes the file systems on disks, and Thaw thaws them. They return their number.
	Freeze() (int, error)
	Thaw() (int, error)
	// IsFrozen reports whether they are frozen.
	IsFrozen() bool
	// Shutdown begins to stop the guest and returns at once.
	Shutdown(ShutdownMode)
}

// ShutdownMode is how a guest ends.
type ShutdownMode string

// The modes of guest-shutdown.
const (
	PowerDown ShutdownMode = "powerdown"
	Reboot    ShutdownMode = "reboot"
	Halt      ShutdownMode = "halt"
)

// Interface is a network interface as guest-network-get-interfaces reports it.
type Interface struct {
	Name            string      `json:"name"`
	HardwareAddress string      `json:"hardware-address,omitempty"`
	Addresses       []Address   `json:"ip-addresses,omitempty"`
	Statistics      *Statistics `json:"statistics,omitempty"`
}

// Address is an address of an interface. Type is ipv4 or ipv6, Prefix the length of
// the network's prefix in bits.
type Address struct {
	IP     string `json:"ip-address"`
	Type   string `json:"ip-address-type"`
	Prefix int    `json:"prefix"`
}

// Statistics counts what an interface received and sent since it exists.
type Statistics struct {
	RxBytes   uint64 `json:"rx-bytes"`
	RxPackets uint64 `json:"rx-packets"`
	RxErrors  uint64 `json:"rx-errs"`
	RxDropped uint64 `json:"rx-dropped"`
	TxBytes   uint64 `json:"tx-bytes"`
	TxPackets uint64 `json:"tx-packets"`
	TxErrors  uint64 `json:"tx-errs"`
	TxDropped uint64 `json:"tx-dropped"`
}

// OSInfo says what runs, after os-release(5) and uname(2).
type OSInfo struct {
	KernelRelease string `json:"kernel-release,omitempty"`
	KernelVersion string `json:"kernel-version,omitempty"`
	Machine       string `json:"machine,omitempty"`
	ID            string `json:"id,omitempty"`
	Name          string `json:"name,omitempty"`
	PrettyName    string `json:"pretty-name,omitempty"`
	Version       string `json:"version,omitempty"`
	VersionID     string `json:"version-id,omitempty"`
}

type request struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        json.RawMessage `json:"id"`
}

type response struct {
	Return any             `json:"return,omitempty"`
	Error  *failure        `json:"error,omitempty"`
	ID     json.RawMessage `json:"id,omitempty"`
}

// failure is an error on the wire. Class is one of QEMU's error classes.
type failure struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (f *failure) Error() string { return f.Desc }

type empty struct{}

// command runs with the request's arguments and returns what the host gets, nil for
// no answer at all.
type command func(g Guest, arguments json.RawMessage) (any, error)

// commands are those that the agent knows, by name. It is filled at the start
// because guest-info lists it.
var commands map[string]command

func init() {
	commands = map[string]command{
		"guest-sync":                   sync,
		"guest-sync-delimited":         sync,
		"guest-ping":                   func(Guest, json.RawMessage) (any, error) { return empty{}, nil },
		"guest-info":                   info,
		"guest-get-host-name":          hostname,
		"guest-get-osinfo":             func(g Guest, _ json.RawMessage) (any, error) { return g.OSInfo() },
		"guest-get-time":               func(g Guest, _ json.RawMessage) (any, error) { return g.Now().UnixNano(), nil },
		"guest-set-time":               setTime,
		"guest-network-get-interfaces": interfaces,
		"guest-shutdown":               shutdown,
		"guest-fsfreeze-status":        freezeStatus,
		"guest-fsfreeze-freeze":        func(g Guest, _ json.RawMessage) (any, error) { return g.Freeze() },
		"guest-fsfreeze-thaw":          func(g Guest, _ json.RawMessage) (any, error) { return g.Thaw() },
		"keelson-start":                start,
		"keelson-fork":                 fork,
	}
}

// Serve answers requests until the channel ends or breaks; io.EOF is the end.
func Serve(channel io.ReadWriter, guest Guest) error {
	r := bufio.NewReader(channel)
	for {
		text, err := readRequest(r)
		var reply []byte
		switch {
		case errors.Is(err, errMalformed):
			reply = encode(response{Error: &failure{"GenericError", err.Error()}})
		case err != nil:
			return err
		default:
			reply = answer(guest, text)
		}
		if len(reply) == 0 {
			continue
		}
		if _, err := channel.Write(reply); err != nil {
			return err
		}
	}
}

// answer carries a request out and returns the line to send back, nil for none.
func answer(guest Guest, text []byte) []byte {
	req, err := parse(text)
	if err != nil {
		return encode(response{Error: asFailure(err), ID: req.ID})
	}
	run, known := commands[req.Execute]
	if !known {
		desc := fmt.Sprintf("The command %s has not been found", req.Execute)
		return encode(response{Error: &failure{"CommandNotFound", desc}, ID: req.ID})
	}
	result, err := run(guest, req.Arguments)
	if err != nil {
		return encode(response{Error: asFailure(err), ID: req.ID})
	}
	if result == nil {
		return nil
	}
	line := encode(response{Return: result, ID: req.ID})
	if req.Execute == "guest-sync-delimited" {
		line = append([]byte{sentinel}, line...)
	}
	return line
}

func parse(text []byte) (request, error) {
	var req request
	if err := decodeStrictly(text, &req); err != nil {
		return request{}, err
	}
	if req.Execute == "" {
		return req, errors.New("the request lacks member 'execute'")
	}
	return req, nil
}

// decodeStrictly refuses members that into does not have.
func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{"GenericError", err.Error()}
}

func encode(r response) []byte {
	line, err := json.Marshal(r)
	if err != nil {
		// Only a bug in this package comes here, and the host should see it.
		line = []byte(`{"error":{"class":"GenericError","desc":"the answer cannot be encoded"}}`)
	}
	return append(line, '\n')
}

// sync gives the host's number back, so that it finds its answer among stale ones.
func sync(_ Guest, arguments json.RawMessage) (any, error) {
	var with struct {
		ID *int64 `json:"id"`
	}
	if err := decodeArguments(arguments, &with); err != nil {
		return nil, err
	}
	if with.ID == nil {
		return nil, errors.New("parameter 'id' is missing")
	}
	return *with.ID, nil
}

func decodeArguments(arguments json.RawMessage, into any) error {
	if len(arguments) == 0 {
		return nil
	}
	return decodeStrictly(arguments, into)
}

type commandInfo struct {
	Name            string `json:"name"`
	Enabled         bool   `json:"enabled"`
	SuccessResponse bool   `json:"success-response"`
}

func info(Guest, json.RawMessage) (any, error) {
	list := make([]commandInfo, 0, len(commands))
	for name := range commands {
		list = append(list, commandInfo{name, true, name != "guest-shutdown"})
	}
	slices.SortFunc(list, func(a, b commandInfo) int { return strings.Compare(a.Name, b.Name) })
	return struct {
		Version  string        `json:"version"`
		Commands []commandInfo `json:"supported_commands"`
	}{Version, list}, nil
}

func hostname(g Guest, _ json.RawMessage) (any, error) {
	name, err := g.Hostname()
	if err != nil {
		return nil, err
	}
	return struct {
		Name string `json:"host-name"`
	}{name}, nil
}

// setTime sets the clock, which stood still while the machine was asleep. Without a time, the host means the hardware clock,
// which this guest does not read.
func setTime(g Guest, arguments json.RawMessage) (any, error) {
	var with struct {
		Time *int64 `json:"time"`
	}
	if err := decodeArguments(arguments, &with); err != nil {
		return nil, err
	}
	if with.Time == nil {
		return nil, errors.New("parameter 'time' is missing")
	}
	if err := g.SetTime(time.Unix(0, *with.Time)); err != nil {
		return nil, err
	}
	return empty{}, nil
}

// minimumEntropy is the number of bytes that nobody can guess.
const minimumEntropy = 32

// start is no command of QEMU's agent: the host tells a guest that was started from a template that it is a machine now.
func start(g Guest, arguments json.RawMessage) (any, error) {
	var with struct {
		Entropy entropy `json:"entropy"`
	}
	if err := decodeArguments(arguments, &with); err != nil {
		return nil, err
	}
	if err := with.Entropy.check(); err != nil {
		return nil, err
	}
	if err := g.Start(with.Entropy); err != nil {
		return nil, err
	}
	return empty{}, nil
}

// entropy are random bytes of the host.
type entropy []byte

func (e entropy) check() error {
	if len(e) < minimumEntropy {
		return fmt.Errorf("parameter 'entropy' has %d bytes; it needs %d", len(e), minimumEntropy)
	}
	return nil
}

// fork is no command of QEMU's agent: the host tells a guest that goes on with the memory of another machine which machine it is.
func fork(g Guest, arguments json.RawMessage) (any, error) {
	var with struct {
		Entropy  entropy `json:"entropy"`
		Address  string  `json:"hardware-address"`
		Instance string  `json:"instance-id"`
	}
	if err := decodeArguments(arguments, &with); err != nil {
		return nil, err
	}
	if err := with.Entropy.check(); err != nil {
		return nil, err
	}
	address, err := net.ParseMAC(with.Address)
	if err != nil || len(address) != 6 {
		return nil, fmt.Errorf("parameter 'hardware-address' is %q; it needs six bytes", with.Address)
	}
	if err := g.Fork(with.Entropy, address, with.Instance); err != nil {
		return nil, err
	}
	return empty{}, nil
}

// freezeStatus returns one of QEMU's words for the state of the file systems.
func freezeStatus(g Guest, _ json.RawMessage) (any, error) {
	if g.IsFrozen() {
		return "frozen", nil
	}
	return "thawed", nil
}

func interfaces(g Guest, _ json.RawMessage) (any, error) {
	list, err := g.Interfaces()
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []Interface{}
	}
	return list, nil
}

func shutdown(g Guest, arguments json.RawMessage) (any, error) {
	with := struct {
		Mode ShutdownMode `json:"mode"`
	}{PowerDown}
	if err := decodeArguments(arguments, &with); err != nil {
		return nil, err
	}
	switch with.Mode {
	case PowerDown, Reboot, Halt:
		g.Shutdown(with.Mode)
		return nil, nil
	}
	return nil, errors.New("invalid parameter 'mode': it is one of 'powerdown', 'reboot', 'halt'")
}
