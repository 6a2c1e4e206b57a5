package host

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// timeToLive is how many seconds a client may keep an answer about a name of the cluster.
const timeToLive = 5

// answers are what is known about a name.
type answers struct {
	exists    bool
	addresses []netip.Addr
	canonical string                // what the name stands for, ending in a dot
	rest      []dnsmessage.Resource // what is known about that
	ports     []port
	hosts     []string // the names of an address, each ending in a dot
}

// port is where one of the ports of a Service is.
type port struct {
	host   string // ends in a dot
	number uint16
}

const clusterSuffix = ".svc." + settings.ClusterDomain + "."

// inCluster reports whether a name, which ends in a dot, is one of the cluster.
func inCluster(name string) bool {
	return strings.HasSuffix("."+strings.ToLower(name), "."+settings.ClusterDomain+".")
}

// serviceName is a name of the cluster: of a Service, of one of the Pods behind it, or of one of its ports.
type serviceName struct {
	namespace, name string
	host            string
	port, protocol  string
}

// full is the name of the Service itself.
func (s serviceName) full() string { return s.name + "." + s.namespace + clusterSuffix }

// parseServiceName reads a name that ends in a dot; false if no Service can have it. The forms are those of the DNS
// specification of Kubernetes.
func parseServiceName(text string) (serviceName, bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(text), clusterSuffix)
	if !ok {
		return serviceName{}, false
	}
	labels := strings.Split(rest, ".")
	slices.Reverse(labels)
	var s serviceName
	switch len(labels) {
	case 2:
		s = serviceName{namespace: labels[0], name: labels[1]}
	case 3:
		s = serviceName{namespace: labels[0], name: labels[1], host: labels[2]}
	case 4:
		protocol, ok := strings.CutPrefix(labels[2], "_")
		if !ok {
			return serviceName{}, false
		}
		if s.port, ok = strings.CutPrefix(labels[3], "_"); !ok {
			return serviceName{}, false
		}
		s.namespace, s.name, s.protocol = labels[0], labels[1], protocol
		labels = append(labels[:2:2], protocol, s.port)
	default:
		return serviceName{}, false
	}
	return s, !slices.ContainsFunc(labels, func(label string) bool { return !isLabel(label) })
}

// parseReverse returns the address whose names a name asks for, such as 7.0.96.10.in-addr.arpa., or 32 nibbles before ip6.arpa.
// (RFC 3596); false for other names.
func parseReverse(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if rest, ok := strings.CutSuffix(name, ".ip6.arpa."); ok {
		labels := strings.Split(rest, ".")
		slices.Reverse(labels)
		if len(labels) != 32 || slices.ContainsFunc(labels, func(label string) bool { return len(label) != 1 }) {
			return netip.Addr{}, false
		}
		bytes, err := hex.DecodeString(strings.Join(labels, ""))
		if err != nil {
			return netip.Addr{}, false
		}
		return netip.AddrFrom16([16]byte(bytes)), true
	}
	rest, ok := strings.CutSuffix(name, ".in-addr.arpa.")
	if !ok {
		return netip.Addr{}, false
	}
	labels := strings.Split(rest, ".")
	slices.Reverse(labels)
	address, err := netip.ParseAddr(strings.Join(labels, "."))
	return address, err == nil && address.Is4()
}

// isLabel reports whether a word can be part of the name of an object.
func isLabel(word string) bool {
	return word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && word[0] != '-' && word[len(word)-1] != '-'
}

// isHeadless reports whether a Service has no address but those of its Pods.
func isHeadless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// answer returns what is known about a name, from the Service and, if that is headless, its EndpointSlices.
func answer(name serviceName, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) answers {
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		if name.host != "" || name.port != "" {
			return answers{}
		}
		return answers{exists: true, canonical: strings.TrimSuffix(s.Spec.ExternalName, ".") + "."}
	case isHeadless(s):
		return answerHeadless(name, s, endpoints)
	case name.host != "":
		return answers{}
	case name.port != "":
		var found answers
		for _, p := range s.Spec.Ports {
			found = found.withPort(name, name.full(), p.Name, p.Protocol, p.Port)
		}
		return found
	}
	return answers{exists: true, addresses: serviceAddresses(s)}
}

// serviceAddresses returns the addresses of a Service, one of each family that it has. A headless one has none.
func serviceAddresses(s *corev1.Service) (addresses []netip.Addr) {
	for _, text := range s.Spec.ClusterIPs {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func answerHeadless(name serviceName, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) answers {
	found := answers{exists: name.host == "" && name.port == ""}
	for _, slice := range endpoints {
		for _, e := range slice.Endpoints {
			host, address, ok := hostOf(e, s)
			if !ok {
				continue
			}
			switch {
			case name.port != "":
				for _, p := range slice.Ports {
					found = found.withPort(name, host+"."+name.full(), ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP), ptr.Deref(p.Port, 0))
				}
			case name.host == "" || name.host == host:
				found.exists = true
				// While an endpoint moves from one slice to another it may be in both.
				if !slices.Contains(found.addresses, address) {
					found.addresses = append(found.addresses, address)
				}
			}
		}
	}
	return found
}

// hostOf returns the name and the address of an endpoint of a headless Service; false if it has none, or is not ready.
func hostOf(e discoveryv1.Endpoint, s *corev1.Service) (host string, address netip.Addr, ok bool) {
	ready := ptr.Deref(e.Conditions.Ready, true) || s.Spec.PublishNotReadyAddresses
	if !ready || len(e.Addresses) == 0 {
		return "", netip.Addr{}, false
	}
	address, err := netip.ParseAddr(e.Addresses[0])
	if host = ptr.Deref(e.Hostname, ""); host == "" {
		host = strings.NewReplacer(".", "-", ":", "-").Replace(address.String())
	}
	return host, address, err == nil // an address may be a name
}

// withPort adds where a port of a host is, if the name is that of this port.
func (a answers) withPort(name serviceName, host, portName string, protocol corev1.Protocol, number int32) answers {
	if strings.EqualFold(portName, name.port) && strings.EqualFold(string(protocol), name.protocol) {
		a.exists = true
		a.ports = append(a.ports, port{host, uint16(number)})
	}
	return a
}

// pack returns the message that answers a question; nil for what cannot be said.
func pack(header dnsmessage.Header, question *dnsmessage.Question, found answers, code dnsmessage.RCode) []byte {
	message := dnsmessage.Message{Header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, Authoritative: found.exists, Truncated: header.Truncated,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true, RCode: code,
	}}
	if question != nil {
		message.Questions = []dnsmessage.Question{*question}
		message.Answers = resources(*question, found)
	}
	packed, err := message.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// resources returns what of all that is known is asked for.
func resources(question dnsmessage.Question, found answers) []dnsmessage.Resource {
	var all []dnsmessage.Resource
	add := func(body dnsmessage.ResourceBody) {
		head := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: timeToLive}
		all = append(all, dnsmessage.Resource{Header: head, Body: body})
	}
	if found.canonical != "" {
		if name, err := dnsmessage.NewName(found.canonical); err == nil {
			add(&dnsmessage.CNAMEResource{CNAME: name})
		}
		return append(all, found.rest...)
	}
	for _, address := range found.addresses {
		switch {
		case question.Type == dnsmessage.TypeA && address.Is4():
			add(&dnsmessage.AResource{A: address.As4()})
		case question.Type == dnsmessage.TypeAAAA && address.Is6():
			add(&dnsmessage.AAAAResource{AAAA: address.As16()})
		}
	}
	for _, p := range found.ports {
		if name, err := dnsmessage.NewName(p.host); err == nil && question.Type == dnsmessage.TypeSRV {
			add(&dnsmessage.SRVResource{Weight: 1, Port: p.number, Target: name})
		}
	}
	for _, host := range found.hosts {
		if name, err := dnsmessage.NewName(host); err == nil && question.Type == dnsmessage.TypePTR {
			add(&dnsmessage.PTRResource{PTR: name})
		}
	}
	// Clients take the first one, as a rule.
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
