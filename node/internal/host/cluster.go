package host

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// maxKept is how many answers are kept; then all are forgotten, because Pods can ask for any number of names.
const maxKept = 4096

// cluster knows the names of the Services of the API.
type cluster struct {
	client *http.Client
	server string // URL

	mu   sync.Mutex
	kept map[serviceName]keptAnswers // for timeToLive
}

type keptAnswers struct {
	answers
	until time.Time
}

// newCluster returns the names of the API that a node belongs to. Who asks the API is the node's kube-proxy: that may see
// Services and EndpointSlices, and nothing else of what Pods do.
func newCluster(s settings.Settings) (*cluster, error) {
	file := func(name string) string { return filepath.Join(s.Dir, name) }
	data, err := os.ReadFile(file(settings.CA))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate", file(settings.CA))
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    authorities,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // it is renewed from time to time
			pair, err := tls.LoadX509KeyPair(file(settings.KubeProxyCert), file(settings.KubeProxyKey))
			return &pair, err
		},
	}
	return &cluster{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}},
		server: fmt.Sprintf("https://127.0.0.1:%d", s.APIPort),
		kept:   map[serviceName]keptAnswers{},
	}, nil
}

// lookUp returns what is known about a name, which ends in a dot.
func (c *cluster) lookUp(ctx context.Context, name string) (answers, error) {
	parsed, ok := parseServiceName(name)
	if !ok {
		return answers{}, nil
	}
	c.mu.Lock()
	kept, found := c.kept[parsed]
	c.mu.Unlock()
	if found && time.Now().Before(kept.until) {
		return kept.answers, nil
	}
	known, err := c.ask(ctx, parsed)
	if err != nil {
		return answers{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxKept {
		clear(c.kept)
	}
	c.kept[parsed] = keptAnswers{known, time.Now().Add(timeToLive * time.Second)}
	return known, nil
}

// ask asks the API about a name.
func (c *cluster) ask(ctx context.Context, name serviceName) (answers, error) {
	var services struct{ Items []service }
	// It may list Services, and not get one.
	path := "/api/v1/namespaces/" + name.namespace + "/services?fieldSelector=" + url.QueryEscape("metadata.name="+name.name)
	if err := c.get(ctx, path, &services); err != nil {
		return answers{}, err
	}
	if len(services.Items) == 0 {
		return answers{}, nil
	}
	var endpoints struct{ Items []endpointSlice }
	if services.Items[0].isHeadless() {
		path := "/apis/discovery.k8s.io/v1/namespaces/" + name.namespace + "/endpointslices?labelSelector=" +
			url.QueryEscape("kubernetes.io/service-name="+name.name)
		if err := c.get(ctx, path, &endpoints); err != nil {
			return answers{}, err
		}
	}
	return answer(name, services.Items[0], endpoints.Items), nil
}

func (c *cluster) get(ctx context.Context, path string, into any) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // as far as it can be read
		return fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
