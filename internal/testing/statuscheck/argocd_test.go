package statuscheck

import (
	"maps"
	"os"
	"slices"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/crds"
)

// waits are the reasons of objects that become ready by themselves, or when another object is there. All others need a person.
var waits = []string{
	"GuestBooting", "GuestReset", "Probing", "Creating", "Starting", "Stopping", "FallingAsleep", "Restoring", "Growing", "Importing",
	"SnapshotInProgress", "RollingOut", "MachinesNotReady", "Reading", "Progressing", "PodStarting", "PodTerminating", "Terminating",
	"Provisioning", "Updating", "Waiting", "Stopped", "NotProbed", "Unschedulable", "SecretMissing", "ImageMissing", "ImageNotReady",
	"SourceMissing", "SourceNotReady", "SourceInUse", "MachineMissing", "MachineNotCreated", "MachineNotRunning", "ClusterMissing",
	"ClusterNotRunning", "SnapshotNotAvailable", "ClockBehind", "DriverConflict", "OnAnotherHost", "BackendUnavailable",
}

// healthChecks returns the checks of examples/gitops/argocd-cm.yaml by the group and kind that they are for.
func healthChecks(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../../../examples/gitops/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config corev1.ConfigMap
	customizations := map[string]map[string]string{}
	if err := yaml.UnmarshalStrict(raw, &config); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(config.Data["resource.customizations"]), &customizations); err != nil {
		t.Fatal(err)
	}
	checks := map[string]string{}
	for name, customization := range customizations {
		checks[name] = customization["health.lua"]
	}
	return checks
}

// health runs a check as Argo CD does: with the libraries that it opens by default.
func health(t *testing.T, check string, object any) string {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, open := range []lua.LGFunction{lua.OpenPackage, lua.OpenBase, lua.OpenTable} {
		open(state)
	}
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(check); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok || result.RawGetString("message").String() == "" {
		t.Fatalf("the check returned %v", state.Get(-1))
	}
	return result.RawGetString("status").String()
}

func toLua(state *lua.LState, value any) lua.LValue {
	table := state.NewTable()
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case int64:
		return lua.LNumber(value)
	case map[string]any:
		for key, inner := range value {
			table.RawSetString(key, toLua(state, inner))
		}
	case []any:
		for _, inner := range value {
			table.Append(toLua(state, inner))
		}
	}
	return table
}

func TestArgoCDChecksEveryGroup(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, definition := range definitions {
		want[definition.Spec.Group+"/*"] = true
	}
	checks := healthChecks(t)
	if got := slices.Sorted(maps.Keys(checks)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("there are checks for %v, want %v", got, slices.Sorted(maps.Keys(want)))
	}
	for name, check := range checks {
		if check != checks["cloudnative.tw/*"] {
			t.Errorf("the check for %s is another one", name)
		}
	}
}

func TestArgoCDUnderstandsDocumentedRows(t *testing.T) {
	check := healthChecks(t)["cloudnative.tw/*"]
	rows := documentedRows(t)
	for _, reason := range []string{ // the page of Clusters has one row for several statuses
		"Provisioning", "Updating", "ProvisioningFailed", "InvalidSpec", "VersionNotAvailable", "SnapshotNotAvailable", "ConfigNotFound",
		"EngineNotAvailable", "StateFileMissing", "Waiting", "Stopped",
	} {
		rows = append(rows, row{"cluster.md", "Provisioned", "False", reason})
	}
	rows = append(rows, row{"cluster.md", "Ready", "True", "Available"}, row{"cluster.md", "Ready", "Unknown", "NotProbed"},
		row{"cluster.md", "Ready", "Unknown", "KubeconfigInvalid"}, row{"cluster.md", "Ready", "False", "ComponentDown"},
		row{"cluster.md", "Ready", "False", "KubeconfigExpired"}, row{"cluster.md", "Ready", "False", "NoKubeconfig"})
	seen := map[string]int{}
	for _, r := range rows {
		want, conditions := "Healthy", []any{r.toCondition()}
		switch {
		case r.condition == "Provisioned":
			conditions = append(conditions, row{condition: "Ready", status: "False", reason: "Updating"}.toCondition())
			fallthrough
		case r.status != "True":
			want = "Degraded"
			if slices.Contains(waits, r.reason) {
				want = "Progressing"
			}
		}
		if r.condition != "Ready" && r.condition != "Provisioned" {
			continue
		}
		seen[want]++
		if got := health(t, check, objectWith(conditions...)); got != want {
			t.Errorf("%v is %s for Argo CD, want %s", r, got, want)
		}
	}
	if seen["Healthy"] < 10 || seen["Degraded"] < 40 || seen["Progressing"] < 30 {
		t.Errorf("only these rows were found: %v", seen)
	}
}

func TestArgoCDWaitsForTheController(t *testing.T) {
	check := healthChecks(t)["cloudnative.tw/*"]
	ready := row{condition: "Ready", status: "True", reason: "Running"}.toCondition()
	for name, object := range map[string]map[string]any{
		"no status":              {"metadata": map[string]any{"generation": int64(1)}},
		"an earlier generation":  {"metadata": map[string]any{"generation": int64(3)}, "status": objectWith(ready)["status"]},
		"no condition Ready yet": objectWith(row{condition: "Created", status: "False", reason: "Creating"}.toCondition()),
	} {
		if got := health(t, check, object); got != "Progressing" {
			t.Errorf("with %s it is %s, want Progressing", name, got)
		}
	}
}
