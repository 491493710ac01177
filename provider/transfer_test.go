package provider_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestControlRequestsGoWhereTheDocumentsSay(t *testing.T) {
	for _, tt := range []struct{ name, base, path, want string }{
		{"openai", "", "/v1/batches", "https://api.openai.com/v1/batches?limit=5"},
		{"openai", "http://127.0.0.1:8000", "/v1/files", "http://127.0.0.1:8000/v1/files?limit=5"},
		{"azure", "https://r.openai.azure.com/openai/v1?api-version=preview", "/v1/files", "https://r.openai.azure.com/openai/v1/files?api-version=preview&limit=5"},
		{"anthropic", "", "/v1/messages/batches", "https://api.anthropic.com/v1/messages/batches?limit=5"},
		{"anthropic", "https://proxy.example.com/anthropic/", "/v1/messages/batches", "https://proxy.example.com/anthropic/v1/messages/batches?limit=5"},
		{"gemini", "", "/v1beta/batches", "https://generativelanguage.googleapis.com/v1beta/batches?limit=5"},
		{"gemini", "", "/upload/v1beta/files", "https://generativelanguage.googleapis.com/upload/v1beta/files?limit=5"},
		{"gemini", "http://h/x/v1alpha", "/download/v1beta/files/a:download", "http://h/x/download/v1alpha/files/a:download?limit=5"},
		{"gemini", "http://h", "/upload/v1beta/files", "http://h/upload/v1beta/files?limit=5"},
	} {
		p, _ := provider.Lookup(tt.name)
		req, err := p.NewControl(t.Context(), provider.Target{BaseURL: tt.base, Key: "abc-secret", Header: http.Header{"X-Team": {"blue"}}},
			provider.Control{Method: "GET", Path: tt.path, Query: url.Values{"limit": {"5"}}, Dialect: p.Dialect})
		if err != nil || req.URL.String() != tt.want || !strings.Contains(req.Header.Get(p.Auth.Header), "abc-secret") || req.Header.Get("X-Team") != "blue" || req.Header.Get("Content-Type") != "" {
			t.Errorf("%v %v, want %s, %v", err, req.URL, tt.want, req.Header)
		}
	}
	if _, err := (provider.Provider{Name: "x"}).NewControl(t.Context(), provider.Target{}, provider.Control{}); err == nil {
		t.Error("nowhere is an address")
	}
}

// A request and an answer may take as long as they like, if they do not stand still.
func TestTransfersMustNotStandStill(t *testing.T) {
	for name, tt := range map[string]struct {
		up, think, down time.Duration
		want            any // a Deadline, or nil
	}{
		"long ones":         {50 * time.Second, 9 * time.Minute, 50 * time.Second, nil},
		"a stuck upload":    {2 * time.Hour, 0, 0, provider.SendDeadline},
		"a slow thinker":    {time.Second, 11 * time.Minute, 0, provider.FirstByteDeadline},
		"a stuck download":  {time.Second, time.Second, 2 * time.Hour, provider.IdleDeadline},
		"all of it at once": {0, 0, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := tripper(func(req *http.Request) (*http.Response, error) {
				var sent []byte
				for b := make([]byte, 1); ; {
					n, err := req.Body.Read(b)
					sent = append(sent, b[:n]...)
					if err != nil {
						break
					}
					select {
					case <-time.After(tt.up):
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}
				select {
				case <-time.After(tt.think):
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
				body := &slowly{string(sent), tt.down, req.Context().Done(), false}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(body)}, nil
			})
			p, _ := provider.Lookup("openai")
			text := strings.Repeat("abcdefgh", 5)
			req, err := p.NewControl(t.Context(), provider.Target{}, provider.Control{Method: "POST", Path: "/v1/files", Size: int64(len(text)),
				Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }})
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			_, o := provider.Transfer(t.Context(), base, req, provider.TransferConfig{Provider: p, To: &got})
			late, is := errors.AsType[*provider.LateError](o.Err)
			if tt.want == nil && (o.Kind != sluice.OK || got.String() != text) || tt.want != nil && (!is || late.Deadline != tt.want || o.Kind != sluice.Timeout || late.Error() == "") {
				t.Errorf("%s: %+v, %q", name, o, got.String())
			}
		})
	}
}

// slowly is a text whose first letter comes at once, and then letter by letter, until done is closed.
type slowly struct {
	text  string
	each  time.Duration
	done  <-chan struct{}
	begun bool
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	if s.begun {
		select {
		case <-time.After(s.each):
		case <-s.done:
			return 0, errors.New("the connection was closed")
		}
	}
	s.begun, p[0], s.text = true, s.text[0], s.text[1:]
	return 1, nil
}

// A key is struck out of what passes, however the parts come; nothing else changes, and not a byte is lost.
func TestTransfersHoldNoKeys(t *testing.T) {
	const key = "abab-secret-abab"
	text := "ab" + key + "abab-secret-" + key + key + "x\nabab-secret-aba"
	stars := strings.Repeat("*", 4*len(key))
	want := "ab" + stars[:3*len(key)+12] + "x\n" + stars[:15] // parts of a key too
	p, _ := provider.Lookup("openai")
	for size := 1; size < 20; size++ {
		base := tripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(&chunks{text, size})}, nil
		})
		req, err := p.NewControl(t.Context(), provider.Target{Key: key}, provider.Control{Method: "GET", Path: "/v1/files/a/content"})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, o := provider.Transfer(t.Context(), base, req, provider.TransferConfig{Provider: p, Key: key, To: &got}); o.Kind != sluice.OK || got.String() != want {
			t.Errorf("in parts of %d: %v\n%s\n%s", size, o.Err, got.String(), want)
		}
	}
}

// chunks is a text that comes in parts of a size.
type chunks struct {
	text string
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), c.size)], c.text)
	c.text = c.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
