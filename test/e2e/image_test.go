package e2e

import (
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A machine waits for its image, which waits for the machine when it is deleted. The name of the
// test says that it is not for a manager of some namespaces, which has no images.
func TestSmokeImageOfTheClusterAndItsMachine(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	name := "it-" + s.namespace
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: waiting}\nspec: {image: {name: " + name + "}}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.untilField(t, "vm/waiting", `{.status.conditions[?(@.type=="Ready")].reason}`, "ImageMissing")
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachineImage\nmetadata: {name: " + name + "}\nspec: {path: /nowhere/image}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	t.Cleanup(func() { s.kubectl(t, "delete", "vmimage", name, "--ignore-not-found") })
	s.untilField(t, "vm/waiting", `{.status.conditions[?(@.type=="Ready")].reason}`, "ImageNotReady")
	s.kubectl(t, "delete", "vmimage", name, "--wait=false")
	s.untilField(t, "vmimage/"+name, `{.status.conditions[?(@.type=="Deleting")].reason} {.status.users}`, "InUse 1")
	s.kubectl(t, "delete", "vm/waiting")
	s.kubectl(t, "wait", "--for=delete", "vmimage/"+name, "--timeout", transcript.WaitTimeout.String())
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}
