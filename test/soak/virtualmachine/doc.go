// Package virtualmachine is a soak test of VirtualMachines on QEMU: real machines and a real
// manager, both of which are killed.
package virtualmachine
