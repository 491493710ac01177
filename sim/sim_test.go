package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// serve makes a server.
func serve(t testing.TB, c sim.Config) *sim.Server {
	t.Helper()
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chatBody is a request of the given number of input tokens.
func chatBody(name string, input, maxTokens int) string {
	text := name + strings.Repeat("x", max(0, 4*input-len(name)))
	limit := ""
	if maxTokens > 0 {
		limit = fmt.Sprintf(`,"max_tokens":%d`, maxTokens)
	}
	return fmt.Sprintf(`{"model":"gpt-4o","messages":[{"role":"user","content":%q}]%s}`, text, limit)
}

const (
	chatPath = "/v1/chat/completions"
	baseURL  = "http://sim.invalid"
)

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of the call or of reading
	took   time.Duration
}

// send makes a call in process.
func send(ctx context.Context, s *sim.Server, path, body string, header ...string) reply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+path, nil)
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return sendRequest(s, r, body)
}

// sendRequest makes a call with that body.
func sendRequest(s *sim.Server, r *http.Request, body string) reply {
	begun := time.Now()
	r.Body = io.NopCloser(strings.NewReader(body))
	response, err := (&http.Client{Transport: s.Transport()}).Do(r)
	if err != nil {
		return reply{err: err, took: time.Since(begun)}
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(b), err, time.Since(begun)}
}

// message is the text of an error of any dialect.
func (r reply) message() string {
	var v struct {
		Error struct{ Message string }
	}
	json.Unmarshal([]byte(r.body), &v)
	return v.Error.Message
}

// bubble runs f in a bubble of its own, with a context that outlives it not.
func bubble(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, t.Context()) })
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func contains(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s lacks %q:\n%s", what, want, got)
	}
}
