package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
	"github.com/keelson-dev/keelson/internal/testing/browser"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m, browser.Stop) }

// world has one object of each kind in a namespace, with the statuses that controllers would write.
type world struct {
	t         testing.TB
	client    client.Client
	config    *rest.Config
	namespace string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	config := env.Config(t)
	scheme := harness.Scheme(t, samplev1.AddToScheme, foov1alpha1.AddToScheme, stablev1.AddToScheme, vmv1alpha1.AddToScheme, clusterv1alpha1.AddToScheme)
	w := &world{t: t, client: harness.Client(t, config, scheme), config: config, namespace: env.Namespace(t)}
	about := metav1.ObjectMeta{Namespace: w.namespace}
	named := func(name string) metav1.ObjectMeta { m := about; m.Name = name; return m }
	w.create(&vmv1alpha1.VirtualMachine{ObjectMeta: named("db")}, "False", "SecretMissing", "there is no Secret db-seed")
	w.create(&vmv1alpha1.VirtualMachine{ObjectMeta: named("web")}, "True", "GuestReady", "")
	w.create(&vmv1alpha1.VirtualMachine{ObjectMeta: named("old"), Spec: vmv1alpha1.VirtualMachineSpec{Action: vmv1alpha1.ActionStopped}}, "True", "Stopped", "")
	w.create(&stablev1.CronTab{ObjectMeta: named("backup"), Spec: stablev1.CronTabSpec{
		Schedule:    "0 3 * * *",
		JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}},
	}}, "True", "Scheduled", "The next run is scheduled")
	w.create(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, "True", "Available", "")
	w.create(&clusterv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, "True", "KubeconfigWritten", "")
	w.create(&foov1alpha1.Foo{ObjectMeta: named("shop"), Spec: foov1alpha1.FooSpec{DeploymentName: "shop"}}, "False", "Progressing", "")
	w.create(&samplev1.SampleResource{ObjectMeta: named("sample"), Spec: samplev1.SampleResourceSpec{PodImage: "nginx:1"}}, "True", "PodReady", "")
	event := &corev1.Event{
		ObjectMeta: named("db.1"), Type: corev1.EventTypeWarning, Reason: "SecretMissing", Message: "there is no Secret db-seed", Count: 3,
		InvolvedObject: corev1.ObjectReference{APIVersion: "cloudnative.tw/v1alpha1", Kind: "VirtualMachine", Namespace: w.namespace, Name: "db"},
		LastTimestamp:  metav1.Now(),
	}
	if err := w.client.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	return w
}

// create creates an object with the condition Ready.
func (w *world) create(object client.Object, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	if object.GetNamespace() == "" {
		w.t.Cleanup(func() {
			if err := w.client.Delete(w.t.Context(), object); client.IgnoreNotFound(err) != nil && w.t.Context().Err() == nil {
				w.t.Error(err)
			}
		})
	}
	w.ready(object, status, reason, message)
}

// ready changes the condition Ready of an object.
func (w *world) ready(object client.Object, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	condition := metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message}
	switch o := object.(type) {
	case *vmv1alpha1.VirtualMachine:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *stablev1.CronTab:
		// It is in nine hours for half an hour.
		next := metav1.NewTime(time.Now().Add(9*time.Hour + 30*time.Minute).Truncate(time.Second))
		o.Status.NextScheduleTime = &next
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *clusterv1alpha1.Cluster:
		o.Status.Phase = clusterv1alpha1.PhaseProvisioned
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *clusterv1alpha1.Kubeconfig:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *foov1alpha1.Foo:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *samplev1.SampleResource:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	}
	if err := w.client.Status().Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func TestEveryPage(t *testing.T) {
	visitEveryPage(t, func(b *browser.Tab, name string) { b.Keep(name) })
}

func TestLongAccessibility(t *testing.T) {
	visitEveryPage(t, func(b *browser.Tab, _ string) { b.Accessible() })
}

// visitEveryPage opens all pages, and calls a function when one is there.
func visitEveryPage(t *testing.T, visit func(b *browser.Tab, name string)) {
	t.Helper()
	w := newWorld(t)
	c := serve(t, w.config)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/?namespace="+w.namespace+"#", 1))
	b.Sees("Needs attention", "SecretMissing", "1 Machine", "there is no Secret db-seed", "create the Secret or key of cloudInit", "backup", "in 9h", "Progressing", "The cluster has no nodes", "Stopped, paused or asleep on request", "Recent warnings")
	b.Until(`location.hash === ""`)
	visit(b, "overview")
	for path, texts := range map[string][]string{
		"/virtualmachines": {"Machines", "db", "web", "old", "GuestReady"},
		"/crontabs":        {"Schedules", "backup", "0 3 * * *", "in 9h"},
		"/clusters":        {"Clusters", w.namespace, "Provisioned"},
		"/kubeconfigs":     {"Kubeconfigs", w.namespace},
		"/foos":            {"Foos", "shop", "Progressing"},
		"/sampleresources": {"SampleResources", "sample", "nginx:1"},
		"/virtualmachines/" + w.namespace + "/db":      {"db", "SecretMissing", "there is no Secret db-seed", "Conditions", "YAML"},
		"/crontabs/" + w.namespace + "/backup":         {"backup", "The next run is scheduled", "There are no Jobs"},
		"/clusters/" + w.namespace:                     {"Provisioned", "Conditions"},
		"/kubeconfigs/" + w.namespace:                  {"KubeconfigWritten"},
		"/foos/" + w.namespace + "/shop":               {"shop", "Progressing"},
		"/sampleresources/" + w.namespace + "/sample":  {"PodReady", "nginx:1"},
		"/virtualmachines/" + w.namespace + "/missing": {"missing does not exist"},
		"/somewhere/else":                              {"There is no such page"},
	} {
		// Other tests have objects, too, and a list shows what fits.
		query := "?namespace=" + w.namespace
		if path == "/clusters" || path == "/kubeconfigs" {
			query = "?search=" + w.namespace
		}
		b.Open(c.Address() + path + query)
		b.Sees(texts...)
		visit(b, strings.ReplaceAll(strings.ReplaceAll(strings.Trim(path, "/"), w.namespace+"/", ""), "/", "-"))
	}
}

func TestKeysLinksAndTheBackButton(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/?namespace="+w.namespace)
	b.Sees("Overview", "Machines")
	b.PressUntil("gm", `location.pathname === "/virtualmachines"`)
	b.Sees("web", "db", "old")
	b.Press("/")
	b.Press("web")
	b.Until(`document.querySelectorAll("main td a").length === 1`)
	b.Press("\x1b")
	b.Press("j\r")
	b.Until(`location.pathname.endsWith("/web")`)
	b.Sees("GuestReady", "Summary")
	b.Do(chromedp.NavigateBack())
	b.Until(`location.search.includes("search=web") && document.querySelectorAll("main td a").length === 1`)
	b.Press("?")
	b.Sees("Keyboard shortcuts")
	b.Accessible()
	b.Keep("help")
}

func TestLiveUpdate(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/virtualmachines?namespace="+w.namespace)
	b.Sees("web", "db", "old")
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "fresh"}}
	w.create(machine, "False", "CreateFailed", "no space left")
	b.Sees("fresh", "CreateFailed")
	w.ready(machine, "True", "GuestReady", "")
	b.Until(`!document.body.innerText.includes("CreateFailed")`)
	if err := w.client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	b.Until(`!document.body.innerText.includes("fresh")`)
}

func TestLostConnection(t *testing.T) {
	w := newWorld(t)
	api := apiproxy.New(t, w.config, 1)
	b := openPage(t, &rest.Config{Host: api.URL}, "/virtualmachines?namespace="+w.namespace)
	b.Sees("web", "db", "old")
	b.Expect("502")
	api.Cut(true)
	api.Set(apiproxy.Faults{}) // ends the watches
	b.Sees("Connection lost", "does not answer", "web")
	b.Keep("lost")
	w.create(&vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "meanwhile"}}, "True", "GuestReady", "")
	api.Cut(false)
	b.Sees("meanwhile")
	b.Until(`!document.body.innerText.includes("Connection lost")`)
}

func TestProgramEnds(t *testing.T) {
	w := newWorld(t)
	port := int(harness.FreeAddress(t).Port())
	c, stop := serveUntil(t, w.config, port)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/virtualmachines?namespace="+w.namespace+"#", 1))
	b.Sees("web", "db", "old")
	b.Expect("Failed to load resource") // also what is still being read at the end
	b.Expect("WebSocket connection to")
	stop()
	b.Sees("Connection lost", "The program keelson does not answer", "web")
	serveUntil(t, w.config, port)
	b.Sees("This page has no session", "keelson console")
}

func TestUserWhoMaySeeNothing(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "jane"
	c := serve(t, config)
	b := browser.New(t) // closed before the console
	b.Expect("403")
	b.Open(c.URL())
	b.Sees("You may not see Machines", `User "jane" cannot list resource "virtualmachines"`, "jane")
	b.Accessible()
	b.Keep("denied")
	b.Open(c.Address() + "/virtualmachines/" + w.namespace + "/db")
	b.Sees("You may not see db", `User "jane" cannot list resource "virtualmachines"`)
}

func TestNoSession(t *testing.T) {
	c := serve(t, env.Config(t))
	b := browser.New(t) // closed before the console
	b.Expect("401")
	b.Open(c.Address())
	b.Sees("This page has no session", "keelson console")
	b.Accessible()
	b.Keep("no-session")
}

// manyFoos is an API with n Foos and nothing else.
func manyFoos(t testing.TB, n int) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "/foos") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","code":404}`)
			return
		}
		if query.Has("watch") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		from, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		table := metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string"}, {Name: "Ready", Type: "string"}, {Name: "Reason", Type: "string", Priority: 1},
		}}
		for i := from; i < min(from+limit, n); i++ {
			name := fmt.Sprintf("foo-%d", i)
			object, _ := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.Now()}})
			table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{name, "True", "Available"}, Object: runtime.RawExtension{Raw: object}})
		}
		if from+limit < n {
			table.Continue = strconv.Itoa(from + limit)
		}
		_ = json.NewEncoder(w).Encode(table)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// scrollForFrames scrolls a list by 20 rows in each of 61 frames, and tells the median of the times between them.
const scrollForFrames = `(() => {
	const grid = document.querySelector(".grid"), times = [];
	const step = (now) => {
		times.push(now);
		grid.scrollTop += 20 * 36;
		if (times.length < 62) requestAnimationFrame(step);
		else window.frames60 = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b)[30];
	};
	requestAnimationFrame(step);
	return true;
})()`

func TestTenThousandObjects(t *testing.T) {
	b := openPage(t, manyFoos(t, 10_000), "/foos", "404")
	b.Sees("10,000", "foo-0")
	if rows := browser.Value[int](b, `document.querySelectorAll("main tbody tr").length`); rows > 100 {
		t.Errorf("%d rows are in the document", rows)
	}
	b.Keep("many")
	browser.Value[bool](b, scrollForFrames)
	b.Until("window.frames60")
	// No limit, because other work slows it: 17 ms on an idle machine, which is 60 frames a second.
	t.Logf("a frame takes %.1f ms while the list scrolls", browser.Value[float64](b, "window.frames60"))
	browser.Value[bool](b, `(document.querySelector(".grid").scrollTop = 1e9, true)`)
	b.Sees("foo-9999")
	b.Press("/")
	b.Press("foo-77")
	b.Sees("111 of 10,000", "foo-7799")
	heap := browser.Value[float64](b, `performance.memory.usedJSHeapSize`)
	t.Logf("the page uses %.0f MB", heap/1e6)
	if heap > 300e6 {
		t.Errorf("the page uses %.0f MB", heap/1e6)
	}
}
