package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// longBody is a request of that many bytes, unlike others.
func longBody(id, size int) string {
	return fmt.Sprintf(`{"model":"alias","id":%d,"messages":[{"role":"user","content":"%s"}]}`, id, strings.Repeat(string(rune('a'+id%26)), size))
}

func TestATryIsSentTheSameBytesAgain(t *testing.T) {
	for _, size := range []int{100, 100 << 10, 1<<20 - 1, 3 << 20} {
		var sums [][32]byte
		_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			sums = append(sums, sha256.Sum256(b))
			if len(sums) == 1 {
				w.Header().Set("Retry-After-Ms", "1")
				w.WriteHeader(429)
				return
			}
			whole(w, chatAnswer)
		}, nil)
		body := longBody(1, size)
		if got := post(t, front.URL+"/v1/chat/completions", body); got.status != 200 {
			t.Fatalf("%d bytes: %d %.200s", size, got.status, got.body)
		}
		want := sha256.Sum256([]byte(strings.Replace(body, "alias", "m-2026", 1)))
		if len(sums) != 2 || sums[0] != want || sums[1] != want {
			t.Errorf("%d bytes: %d tries, the same: %v", size, len(sums), sums[0] == want)
		}
	}
}

func TestABodyIsNotUsedAgainWhileAConnectionMaySendIt(t *testing.T) {
	// Refusals that come before the body was read leave a connection that goes on sending, after the call is over.
	release := make(chan struct{})
	var sends sync.WaitGroup
	early := roundTrip(func(r *http.Request) (*http.Response, error) {
		take := func() {
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			text := b[bytes.Index(b, []byte(`"content":"`))+11 : bytes.LastIndexByte(b, '"')]
			if err != nil || int64(len(b)) != r.ContentLength || bytes.Count(text, text[:1]) != len(text) {
				t.Errorf("a body of %d bytes is sent with parts of another: %d, %v", r.ContentLength, len(b), err)
			}
		}
		if r.Header.Get("X-Early") == "" {
			take()
			return document(200, chatAnswer), nil
		}
		sends.Go(func() {
			<-release
			take()
		})
		return document(400, `{"error":{"message":"no","type":"invalid_request_error"}}`), nil
	})
	x := relay(t, "http://up.test", func(s *setting) { s.Base = early })
	for i := range 50 {
		size := []int{1 << 10, 100 << 10}[i%2] // sent from a copy, and not
		for _, header := range []string{"yes", ""} {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(longBody(i, size)))
			if header != "" {
				r.Header.Set("X-Early", header)
			}
			x.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	close(release)
	sends.Wait()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func document(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}
