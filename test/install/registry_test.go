package install

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// registry accepts pushed images with the required part of
// https://distribution.github.io/distribution/spec/api/. It keeps only their tags. An engine
// reaches it as a proxy, under any name.
type registry struct {
	url string

	mu      sync.Mutex
	blobs   map[string]int64 // sizes by digest
	uploads map[string]sent  // by path
	tags    []string         // NAME:TAG
}

// sent is the content of an upload so far.
type sent struct {
	digest string
	size   int64
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{blobs: map[string]int64{}, uploads: map[string]sent{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("HEAD /v2/{name}/blobs/{digest}", r.hasBlob)
	mux.HandleFunc("POST /v2/{name}/blobs/uploads/{$}", r.beginUpload)
	mux.HandleFunc("PATCH /v2/{name}/blobs/uploads/{id}", r.upload)
	mux.HandleFunc("PUT /v2/{name}/blobs/uploads/{id}", r.endUpload)
	mux.HandleFunc("PUT /v2/{name}/manifests/{tag}", r.tag)
	server := httptest.NewServer(mux) // other requests get 404, and TLS is rejected
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// pushed returns the pushed tags in order.
func (r *registry) pushed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.tags))
}

func (r *registry) hasBlob(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size, ok := r.blobs[request.PathValue("digest")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
}

func (r *registry) beginUpload(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := fmt.Sprintf("%s%d", request.URL.Path, len(r.uploads))
	r.uploads[place] = sent{}
	w.Header().Set("Location", place)
	w.Header().Set("Range", "0-0")
	w.WriteHeader(http.StatusAccepted)
}

// upload receives a blob, which an engine sends in one piece.
func (r *registry) upload(w http.ResponseWriter, request *http.Request) {
	hash := sha256.New()
	n, err := io.Copy(hash, request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uploads[request.URL.Path] = sent{fmt.Sprintf("sha256:%x", hash.Sum(nil)), n}
	w.Header().Set("Location", request.URL.Path)
	w.Header().Set("Range", fmt.Sprintf("0-%d", n-1))
	w.WriteHeader(http.StatusAccepted)
}

func (r *registry) endUpload(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	digest := request.URL.Query().Get("digest")
	got := r.uploads[request.URL.Path]
	if got.digest != digest {
		http.Error(w, "this is "+got.digest, http.StatusBadRequest)
		return
	}
	r.blobs[digest] = got.size
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
}

func (r *registry) tag(w http.ResponseWriter, request *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, request.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags = append(r.tags, request.Host+"/"+request.PathValue("name")+":"+request.PathValue("tag"))
	w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", hash.Sum(nil)))
	w.WriteHeader(http.StatusCreated)
}
