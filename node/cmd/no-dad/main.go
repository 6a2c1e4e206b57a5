// Command no-dad is a CNI plugin that comes before others. It turns off the detection of duplicate addresses of IPv6 in the network namespace
// of a Pod: nobody else gives out its addresses, and each Pod would start a second or two later.
package main

import (
	"encoding/json"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
)

func main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: nothing, Del: nothing, Status: nothing, GC: nothing}, version.All, "no-dad")
}

func add(args *skel.CmdArgs) error {
	var config types.PluginConf
	if err := json.Unmarshal(args.StdinData, &config); err != nil {
		return err
	}
	err := ns.WithNetNSPath(args.Netns, func(ns.NetNS) error {
		for _, scope := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/accept_dad", []byte("0"), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return types.PrintResult(&current.Result{}, config.CNIVersion)
}
