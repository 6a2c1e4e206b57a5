package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dist is the output of make console, from the sources in console/.
//
//go:embed dist
var dist embed.FS

const indexFile = "index.html"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// page serves the files of the page. All paths without a file are pages of the application, which has its own routes.
type page struct {
	files map[string]file // by path without the leading slash
	// nonce allows the style elements of the terminal.
	nonce string
	// isSecure reports whether the browser reaches a host with TLS.
	isSecure func(host string) bool
}

type file struct {
	contentType, etag string
	content           []byte
}

func loadPage() (*page, error) {
	p := &page{files: map[string]file{}, nonce: newSecret()}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		content = bytes.ReplaceAll(content, []byte(`nonce="-"`), []byte(`nonce="`+p.nonce+`"`))
		sum := sha256.Sum256(content)
		p.files[strings.TrimPrefix(name, "dist/")] = file{contentTypes[path.Ext(name)], `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`, content}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded page: %w", err)
	}
	if _, found := p.files[indexFile]; !found {
		return nil, fmt.Errorf("the page of the console is not in this program: build it again after make console")
	}
	return p, nil
}

// socket returns the source of WebSockets to a host.
func (p *page) socket(host string) string {
	if p.isSecure(host) {
		return "wss://" + host
	}
	return "ws://" + host
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "Files are only read.")
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	found, ok := p.files[name]
	if !ok && strings.HasPrefix(name, "assets/") {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "The page has no such file.")
		return
	}
	if !ok {
		found = p.files[indexFile]
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; "+
		// A screen is drawn from images that its server sends.
		"img-src 'self' data:; "+
		// The terminal makes style elements, and style attributes for the colors of its text.
		"style-src 'self' 'nonce-"+p.nonce+"'; style-src-attr 'unsafe-inline'; "+
		// Not all browsers count a WebSocket as 'self'.
		"connect-src 'self' "+p.socket(r.Host)+"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", found.contentType)
	h.Set("ETag", found.etag)
	if r.Header.Get("If-None-Match") == found.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(found.content) // the browser has gone
}
