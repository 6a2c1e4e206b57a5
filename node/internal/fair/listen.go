// Package fair listens for datagrams so that one sender cannot fill the receive buffer that the datagrams of others need.
package fair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// senderOffset is where the kernel keeps the source address of an IPv4 packet: SKF_NET_OFF of linux/filter.h, the begin of the
// network header, and RFC 791.
const senderOffset = 0xfff00000 + 12

// ListenUDP listens on an address of IPv4, such as 10.0.0.1:53, with several sockets, each of which has a receive buffer of its
// own. All datagrams of a sender go to the same one, whatever ports it sends from: the last bits of its IP address choose it. So
// senders have neighbours only when there are more of them than sockets, or when their addresses are that far apart.
func ListenUDP(address string, sockets int) (_ []net.PacketConn, err error) {
	var all []net.PacketConn
	defer func() {
		if err != nil {
			for _, c := range all {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	config := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		return control(socket, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	for range sockets {
		c, err := config.ListenPacket(context.Background(), "udp4", address)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		address = c.LocalAddr().String() // with the port that the kernel chose for :0
	}
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: senderOffset, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(sockets)},
		bpf.RetA{},
	})
	if err != nil {
		return nil, err
	}
	socket, err := all[0].(*net.UDPConn).SyscallConn() // the program is one of the whole group
	if err != nil {
		return nil, err
	}
	if err := control(socket, func(fd int) error { return attach(fd, program) }); err != nil {
		return nil, fmt.Errorf("have the sender choose the socket: %w", err)
	}
	return all, nil
}

// attach lets a program of classic BPF choose the socket of a group, see SO_ATTACH_REUSEPORT_CBPF in socket(7).
func attach(fd int, program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

func control(socket syscall.RawConn, do func(fd int) error) error {
	var failed error
	err := socket.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
