package network

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// peerTimeout bounds a question to the switch of another network.
const peerTimeout = 2 * time.Second

// peerName asks the switch of another namespace for a machine that is open to this one.
func (s *netswitch) peerName(peer *Peer, from, name string) (netip.Addr, bool) {
	ctx, cancel := context.WithTimeout(s.ctx, peerTimeout)
	defer cancel()
	var answer nameAnswer
	path := "/name?" + url.Values{"from": {from}, "name": {name}}.Encode()
	if err := requestSwitch(ctx, peer.Socket, http.MethodGet, path, nil, &answer); err != nil {
		return netip.Addr{}, false
	}
	// Not an address of another network, whatever it says.
	return answer.Address, peer.Prefix.Contains(answer.Address)
}

// nameAnswer is the answer to peerName.
type nameAnswer struct {
	Address netip.Addr `json:"address"`
}

// openTo returns the machine with an address or a name if it is open to those of another namespace, which has to be a peer.
func (t *table) openTo(namespace string, p *port) *port {
	if p == nil || t.peerNamed(namespace) == nil || !p.machine.Load().consents(namespace) {
		return nil
	}
	return p
}
