package batchjob_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

const (
	sentinel = "sk-sentinel-5d1f0c7e9b2a4836"
	tag      = "0123456789ab"
)

// server answers as a script says, in turn, and keeps what it was sent.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	script []answer
	seen   []seen
}

type answer struct {
	status int
	body   string
	header http.Header
	do     http.HandlerFunc // instead
}

type seen struct {
	call, body string // the method and address
	header     http.Header
	length     int64
}

func serve(t *testing.T, script ...answer) *server {
	s := &server{script: script}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, seen{r.Method + " " + r.URL.RequestURI(), string(body), r.Header, r.ContentLength})
		if len(s.script) == 0 {
			http.Error(w, "nobody expected this", 599)
			return
		}
		a := s.script[0]
		s.script = s.script[1:]
		for k, v := range a.header {
			w.Header()[k] = v
		}
		if a.do != nil {
			a.do(w, r)
			return
		}
		w.WriteHeader(max(a.status, 200))
		fmt.Fprint(w, a.body)
	}))
	t.Cleanup(s.Close)
	return s
}

// calls are the methods and addresses that it was sent.
func (s *server) calls() (calls []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.seen {
		calls = append(calls, c.call)
	}
	return calls
}

// api is one of a form at the server.
func (s *server) api(t *testing.T, form string) batchjob.API {
	t.Helper()
	p, ok := provider.Lookup(form)
	if !ok {
		t.Fatalf("no provider %s", form)
	}
	to := provider.Target{BaseURL: s.URL, Key: sentinel, Header: http.Header{"X-Team": {"blue"}}}
	if p.Dialect == provider.OpenAI {
		to.BaseURL += "/v1"
	}
	api, err := batchjob.NewAPI(p, to, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// part is one with these lines.
func part(endpoint provider.Endpoint, file string, requests int) *batchjob.File {
	return &batchjob.File{Tag: tag, Model: "model", Endpoint: endpoint, Requests: requests, Size: int64(len(file)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(file)), nil }}
}
