package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// The names of webhooks.
const (
	cronTabs        = "crontabs.stable.example.com"
	virtualMachines = "virtualmachines.cloudnative.tw"
)

// jobFaults makes what a manager asks about Jobs fail, while it has an answer.
type jobFaults struct {
	answer atomic.Pointer[func(*http.Request) (*http.Response, error)]
}

func (f *jobFaults) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if answer := f.answer.Load(); answer != nil && request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/jobs") {
			return (*answer)(request)
		}
		return next.RoundTrip(request)
	})
}

// during runs a function while there is an answer.
func (f *jobFaults) during(answer func(*http.Request) (*http.Response, error), do func()) {
	f.answer.Store(&answer)
	defer f.answer.Store(nil)
	do()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// hangs answers as an API server does that is waiting for something: not at all.
func hangs(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// forbids answers that the manager may not create Jobs.
func forbids(*http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	recorder.WriteHeader(http.StatusForbidden)
	status := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "it", errors.New("there is no role")).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	err := json.NewEncoder(recorder).Encode(status)
	return recorder.Result(), err
}

// startTrying starts a manager whose webhook has to answer: what is let through, it has let through.
func startTrying(t *testing.T, c client.Client, namespace string) *jobFaults {
	t.Helper()
	o, front := webhookOptions(t, c, namespace), newBalancer(t)
	mustAnswer(t, c, o, front)
	faults, cfg := &jobFaults{}, env.Config(t)
	cfg.Wrap(faults.wrap)
	m := startWith(t, cfg, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	front.add(m.WebhookAddress())
	awaitRefusal(t, c, namespace, true)
	return faults
}

// newTemplate returns a CronTab whose jobTemplate is changed in the short form, or also in the full one.
func newTemplate(namespace, name string, pod func(*corev1.PodSpec), job func(*batchv1.JobSpec)) *stablev1.CronTab {
	cronTab := newCronTab(namespace, name, "@daily")
	if pod != nil {
		pod(&cronTab.Spec.JobTemplate.PodSpec)
	}
	if job != nil {
		full := cronTab.Spec.JobTemplate.JobTemplateSpec()
		job(&full.Spec)
		cronTab.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &full.Spec}
	}
	return cronTab
}

func withoutImage(pod *corev1.PodSpec) { pod.Containers[0].Image = "" }

// asItIs makes newTemplate return the full form.
func asItIs(*batchv1.JobSpec) {}

// What only the validation of a Job knows is found when the CronTab is stored.
func TestWebhookTriesTheTemplate(t *testing.T) {
	c, namespace := newWebhookClient(t), env.Namespace(t)
	faults := startTrying(t, c, namespace)
	quantities := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, test := range []struct {
		name string
		pod  func(*corev1.PodSpec)
		// causes are those of the refusal, below the field with the spec of a pod.
		causes []string
	}{
		{"nothing", nil, nil},
		{"a container without image", withoutImage, []string{`.containers[0].image: Required value`}},
		{"two volumes of a name", func(pod *corev1.PodSpec) {
			pod.Volumes = []corev1.Volume{{Name: "a"}, {Name: "a"}}
			for i := range pod.Volumes {
				pod.Volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{}
			}
		}, []string{`.volumes[1].name: Duplicate value: "a"`}},
		{"a volume that is not there, and more asked for than allowed", func(pod *corev1.PodSpec) {
			main := &pod.Containers[0]
			main.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/a"}}
			main.Resources = corev1.ResourceRequirements{Requests: quantities("2"), Limits: quantities("1")}
		}, []string{
			`.containers[0].volumeMounts[0].name: Not found: "a"`,
			`.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
		}},
	} {
		for form, job := range map[string]func(*batchv1.JobSpec){"spec.jobTemplate": nil, "spec.jobTemplate.spec.template.spec": asItIs} {
			t.Run(test.name+" in "+form, func(t *testing.T) {
				var want []string
				for _, cause := range test.causes {
					want = append(want, form+cause)
				}
				expectCauses(t, c, newTemplate(namespace, "it", test.pod, job), want)
			})
		}
	}
	for _, test := range []struct {
		name   string
		job    func(*batchv1.JobSpec)
		causes []string
	}{
		{"a deadline before the beginning", func(job *batchv1.JobSpec) { job.ActiveDeadlineSeconds = ptr.To[int64](-1) }, []string{
			`spec.jobTemplate.spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0`,
		}},
		{"a time to live that the Job gets later", func(job *batchv1.JobSpec) { job.TTLSecondsAfterFinished = ptr.To[int32](-1) }, []string{
			`spec.jobTemplate.spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0`,
		}},
		{"an index and no end", func(job *batchv1.JobSpec) {
			job.CompletionMode, job.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](2)
		}, []string{`spec.jobTemplate.spec.completions: Required value: when completion mode is Indexed`}},
	} {
		t.Run(test.name, func(t *testing.T) { expectCauses(t, c, newTemplate(namespace, "it", nil, test.job), test.causes) })
	}
	t.Run("with other mistakes", func(t *testing.T) {
		both := newTemplate(namespace, "it", withoutImage, nil)
		both.Spec.Schedule, both.Spec.Suspend = "30-10 * * * *", ptr.To(true)
		expectCauses(t, c, both, []string{
			`spec.schedule: Invalid value: "30-10 * * * *": minute "30-10", character 1: the range runs backwards; write the smaller value first, or two ranges: 30-59,0-10`,
			`spec.jobTemplate.containers[0].image: Required value`,
		})
	})
	t.Run("a name that is made", func(t *testing.T) {
		generated := newTemplate(namespace, "", withoutImage, nil)
		generated.GenerateName = "it-"
		expectCauses(t, c, generated, []string{`spec.jobTemplate.containers[0].image: Required value`})
	})
	t.Run("what it warns of", func(t *testing.T) { passesWarningsOn(t, namespace) })
	t.Run("a change", func(t *testing.T) { triesChanges(t, c, namespace, faults) })
	t.Run("what is no mistake of the template", func(t *testing.T) { letsThrough(t, c, namespace, faults) })

	var jobs batchv1.JobList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&jobs, &events} {
		if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	if len(jobs.Items)+len(events.Items) > 0 {
		t.Errorf("what was only tried has left %d Jobs and %d events", len(jobs.Items), len(events.Items))
	}
}

// expectCauses tries to create a CronTab.
func expectCauses(t *testing.T, c client.Client, cronTab *stablev1.CronTab, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, triedCauses(t, c, cronTab, len(want) > 0)); diff != "" {
		t.Errorf("the refusal (-want +got):\n%s", diff)
	}
}

func passesWarningsOn(t *testing.T, namespace string) {
	cfg := env.Config(t)
	cfg.WarningHandlerWithContext = kube.WarningsToContext{}
	scheme, err := newScheme(controllers)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	twice := newTemplate(namespace, "it", func(pod *corev1.PodSpec) {
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
	}, nil)
	var got []string
	if err := c.Create(kube.WithWarnings(t.Context(), &got), twice, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], `spec.jobTemplate.containers[0].env[1]: hides previous definition of "A"`) {
		t.Errorf("got the warnings %q, want one about the variable", got)
	}
}

// triesChanges stores a mistake while nobody can be asked, and goes on from there.
func triesChanges(t *testing.T, c client.Client, namespace string, faults *jobFaults) {
	bad := newTemplate(namespace, "bad", withoutImage, nil)
	faults.during(hangs, func() {
		if err := c.Create(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
	})
	defer func() {
		if err := c.Delete(t.Context(), bad); err != nil {
			t.Error(err)
		}
	}()
	for _, test := range []struct {
		name, patch string
		causes      []string
	}{
		{"it is suspended", `{"spec":{"suspend":true}}`, nil},
		{"the template is changed, and the mistake is the same", `{"spec":{"jobTemplate":{"containers":[{"name":"other"}]}}}`, nil},
		{"there is another one", `{"spec":{"jobTemplate":{"containers":[{"name":"other"},{"name":"other","image":"busybox"}]}}}`, []string{
			`spec.jobTemplate.containers[1].name: Duplicate value: "other"`,
		}},
		{"it is mended", `{"spec":{"jobTemplate":{"containers":[{"name":"other","image":"busybox"}]}}}`, nil},
		{"and made again", `{"spec":{"jobTemplate":{"containers":[{"name":"other"}]}}}`, []string{`spec.jobTemplate.containers[0].image: Required value`}},
	} {
		var got []string
		if err := c.Patch(t.Context(), bad, client.RawPatch(types.MergePatchType, []byte(test.patch))); err != nil {
			got = causesOf(t, err)
		}
		if diff := cmp.Diff(test.causes, got); diff != "" {
			t.Errorf("%s: the refusal (-want +got):\n%s", test.name, diff)
		}
	}
}

// letsThrough creates CronTabs whose Jobs nobody may create now.
func letsThrough(t *testing.T, c client.Client, namespace string, faults *jobFaults) {
	stored := func(what, name string) {
		t.Helper()
		cronTab := newCronTab(namespace, name, "@daily")
		if err := c.Create(t.Context(), cronTab); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if err := c.Delete(t.Context(), cronTab); err != nil {
			t.Error(err)
		}
	}
	faults.during(forbids, func() { stored("the manager may not create Jobs", "forbidden") })
	faults.during(hangs, func() { stored("the API server does not answer", "unanswered") })

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: newCronTab("", "", "").Spec.JobTemplate.PodSpec},
	}}
	refused := func(is func(error) bool, by string) {
		t.Helper()
		harness.Eventually(t, by+" refuses Jobs", func() bool { return is(c.Create(t.Context(), job.DeepCopy(), client.DryRunAll)) })
	}
	none := corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	if err := c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // nobody else writes it here
	if err := c.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	refused(apierrors.IsForbidden, "the quota")
	stored("a quota has no room for Jobs", "beyond")
	expectCauses(t, c, newTemplate(namespace, "it", withoutImage, nil), []string{`spec.jobTemplate.containers[0].image: Required value`})
	if err := c.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}

	forbidJobs(t, c, namespace)
	refused(apierrors.IsInvalid, "a policy")
	stored("a policy calls Jobs invalid", "against")
}

// forbidJobs installs a policy that calls every Job of a namespace invalid.
func forbidJobs(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "jobs-" + namespace}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no Jobs here"}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
		}},
	}}
	for _, object := range []client.Object{policy, binding} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			if err := c.Delete(ctx, object); err != nil {
				t.Errorf("delete what forbids Jobs: %v", err)
			}
		})
	}
}

// expectRefusal asks one replica about a CronTab with a wrong jobTemplate, as an API server does.
func expectRefusal(t *testing.T, address string) {
	t.Helper()
	cronTab := newTemplate("default", "it", withoutImage, nil)
	cronTab.SetGroupVersionKind(stablev1.SchemeGroupVersion.WithKind("CronTab"))
	raw, err := json.Marshal(cronTab)
	if err != nil {
		t.Fatal(err)
	}
	resource := stablev1.SchemeGroupVersion.WithResource("crontabs")
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind(cronTab.GroupVersionKind()), Resource: metav1.GroupVersionResource(resource),
		Namespace: "default", Name: "it", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+admission.Path(cronTabs), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(body), `"field":"spec.jobTemplate.containers[0].image"`) {
		t.Errorf("a replica does not find a mistake in a jobTemplate: %s", body)
	}
}
