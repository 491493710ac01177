package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

const (
	mostScrapes  = 4  // at once; more are told to come again
	mostClients  = 32 // connections that are open at once: each is a file that the run's calls then lack
	scrapeTime   = 10 * time.Second
	shutdownTime = time.Second
)

// Server serves what is not for clients: metrics, and a gateway's dashboard. Close it.
type Server struct {
	listener net.Listener
	http     *http.Server
	wg       sync.WaitGroup
}

// Serve listens on an address such as 127.0.0.1:9464 and answers there from its return on, but refuses requests that name
// another host. Port 0 takes a free port.
func Serve(address string, handler http.Handler) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener}
	s.http = &http.Server{
		Handler:           s.guard(host, handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       scrapeTime,
		WriteTimeout:      2 * scrapeTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // standard error is the run's
	}
	s.wg.Go(func() { s.http.Serve(netutil.LimitListener(listener, mostClients)) }) // until Close; what else ends it is not the run's concern
	return s, nil
}

// Routes answers at /metrics as Handler does, and at /healthz.
func Routes(all ...prometheus.Collector) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", Handler(all...))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

// Handler answers with what it is given, and with how the process is. Whom it answers is for others to say.
func Handler(all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes, Timeout: scrapeTime})
}

// Port is where the server listens.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Everywhere reports whether the server listens on all interfaces of the host.
func (s *Server) Everywhere() bool { return s.listener.Addr().(*net.TCPAddr).IP.IsUnspecified() }

// Local reports whether the server listens on an address of this host only, or on all interfaces.
func (s *Server) Local() bool {
	return s.Everywhere() || s.listener.Addr().(*net.TCPAddr).IP.IsLoopback()
}

// URL is where the metrics are.
func (s *Server) URL() string {
	if s.Everywhere() {
		return fmt.Sprintf("http://127.0.0.1:%d/metrics", s.Port())
	}
	return "http://" + s.listener.Addr().String() + "/metrics"
}

// Close ends the server; a scrape that is under way has a second to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	s.wg.Wait()
	return err
}

// guard refuses requests that name another host than this one: a web page whose name was bound to this address, so that
// its scripts may read what stands here. It also refuses requests that a browser makes for another site.
func (s *Server) guard(configured string, next http.Handler) http.Handler {
	own := map[string]bool{strings.ToLower(configured): true, "localhost": true}
	if s.Everywhere() {
		if name, err := os.Hostname(); err == nil {
			own[strings.ToLower(name)] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "cross-site", "same-site":
			http.Error(w, "requests from pages of other sites are rejected: type the address instead of following a link", http.StatusForbidden)
			return
		}
		host := strings.ToLower(hostOf(r.Host))
		ip := net.ParseIP(host)
		if own[host] || ip != nil && (ip.IsLoopback() || s.Everywhere()) { // nobody binds an address in numbers
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this server is not "+cmp.Or(label(host), "a host without a name")+": use the host name of --metrics in the address", http.StatusForbidden)
	})
}

// hostOf is the host of "host:port", "[::1]:port", or either alone.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}
