//go:build full

package docs_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"

	"github.com/sluice-llm/sluice/sim"
)

// internet is all that a document's commands reach beyond their own host: a proxy that is whatever host they ask for, by a
// certificate of its own making, and there an imitation of a provider. Nothing leaves the machine, and no command has to say
// another address than the document does.
type internet struct {
	url   string // of the proxy
	roots string // a file with the certificate to trust
}

// newInternet starts one for a document.
func newInternet(t *testing.T, c sim.Config) internet {
	t.Helper()
	imitation, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{handler: hosted(imitation), authority: newAuthority(t)}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		p.close()
	})
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, p.authority.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	return internet{server.URL, roots}
}

// newModels starts an imitation of a server of one's own, and returns its address.
func newModels(t *testing.T) string {
	imitation, err := sim.New(provided)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(imitation)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// hosted is an imitation at the paths that hosts have theirs at: an API may stand below another path.
func hosted(imitation http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, known := range []string{"/v1beta/", "/v1/"} {
			if i := strings.Index(r.URL.Path, known); i > 0 && !strings.HasPrefix(r.URL.Path, "/upload/") {
				r.URL.Path = r.URL.Path[i:]
			}
		}
		if _, rest, ok := strings.Cut(r.URL.Path, "/openai/deployments/"); ok { // Azure's
			_, rest, _ = strings.Cut(rest, "/")
			r.URL.Path = "/v1/" + rest
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if text := string(body); strings.Contains(text, "How many stars?") {
			review(w, text)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		imitation.ServeHTTP(w, r)
	})
}

// review answers what a schema of run.md asks for, and for two reviews something else.
func review(w http.ResponseWriter, request string) {
	stars := `4`
	if strings.Contains(request, "number 11") {
		stars = `\"four\"`
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"c","object":"chat.completion","model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant",`+
		`"content":"{\"stars\": `+stars+`}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}`)
}

// proxy takes the place of every host.
type proxy struct {
	handler   http.Handler
	authority *authority

	mu   sync.Mutex
	open []net.Conn
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		p.handler.ServeHTTP(w, r)
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	p.mu.Lock()
	p.open = append(p.open, conn)
	p.mu.Unlock()
	io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	host, _, _ := net.SplitHostPort(r.Host)
	secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{p.authority.certificate(host)}})
	l := &once{conn: secure, done: make(chan struct{})}
	server := http.Server{Handler: p.handler, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			l.Close()
		}
	}}
	server.Serve(l)
}

func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.open {
		conn.Close()
	}
}

// once is a listener for a single connection.
type once struct {
	mu   sync.Mutex
	conn net.Conn
	end  sync.Once
	done chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *once) Close() error {
	l.end.Do(func() { close(l.done) })
	return nil
}

func (l *once) Addr() net.Addr { return &net.TCPAddr{} }

// authority signs the certificates of hosts.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte

	mu    sync.Mutex
	hosts map[string]tls.Certificate
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the documents' tests"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), hosts: map[string]tls.Certificate{}}
}

// certificate returns a host's; if it cannot be made, the empty one, with which no handshake succeeds.
func (a *authority) certificate(host string) tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.hosts[host]; ok {
		return c
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.hosts)) + 2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}
	}
	a.hosts[host] = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	return a.hosts[host]
}

// newEngine starts an imitation of Redis and returns its address.
func newEngine(t *testing.T) string {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n")
		}
		return cmd == "INFO"
	})
	return m.Addr()
}
