package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

// telling are upstreams that tell whoever reads their answers which key they were asked with.
var telling = map[string]func(w http.ResponseWriter, r *http.Request, key string){
	"a refused key": func(w http.ResponseWriter, r *http.Request, key string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s.","code":"invalid_api_key"}}`, key)
	},
	"a bad request": func(w http.ResponseWriter, r *http.Request, key string) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(400)
		fmt.Fprintf(w, "%v", r.Header)
	},
	"a long refusal": func(w http.ResponseWriter, r *http.Request, key string) {
		w.WriteHeader(400)
		fmt.Fprint(w, strings.Repeat("x", 1<<20-10), key, strings.Repeat("x", 1<<20))
	},
	"a header": func(w http.ResponseWriter, r *http.Request, key string) {
		w.Header().Set("X-Debug-Authorization", "Bearer "+key)
		w.Header().Add("Www-Authenticate", `Bearer realm="x", got="`+key+`"`)
		whole(w, chatAnswer)
	},
	"an answer": func(w http.ResponseWriter, r *http.Request, key string) {
		whole(w, `{"choices":[{"message":{"content":"`+key+`"},"finish_reason":"stop"}]}`)
	},
	"a long answer": func(w http.ResponseWriter, r *http.Request, key string) {
		whole(w, `{"choices":[{"message":{"content":"`+strings.Repeat(strings.Repeat("x", 32<<10-20)+key, 50)+`"},"finish_reason":"stop"}]}`)
	},
	"an event": func(w http.ResponseWriter, r *http.Request, key string) {
		half := len(key) / 2
		events(w, chatChunks, `data: {"x":"`+key[:half], key[half:]+`"}`+"\n\n", "data: [DONE]\n\n")
	},
	"a long event": func(w http.ResponseWriter, r *http.Request, key string) {
		half := len(key) / 2
		events(w, chatChunks, `data: {"x":"`+strings.Repeat("x", 100<<10), key[:half], key[half:]+`"}`+"\n\n", "data: [DONE]\n\n")
	},
	"an event that says what went wrong": func(w http.ResponseWriter, r *http.Request, key string) {
		events(w, `data: {"error":{"message":"bad key `+key+`","code":"invalid_api_key"}}`+"\n\n")
	},
	"the last words of a cut stream": func(w http.ResponseWriter, r *http.Request, key string) {
		events(w, chatChunks, `data: {"x":"`+key)
		panic(http.ErrAbortHandler)
	},
	"a redirect": func(w http.ResponseWriter, r *http.Request, key string) {
		w.Header().Set("Location", "http://other.example/?key="+key)
		w.WriteHeader(307)
	},
}

func TestNoAnswerHoldsTheKeyOfTheUpstream(t *testing.T) {
	for name, tell := range telling {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				tell(w, r, key)
			}, func(s *setting) { s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}} })
			for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
				for _, stream := range []bool{true, false} {
					got := post(t, front.URL+path, `{"model":"m","stream":`+strconv.FormatBool(stream)+`}`)
					if all := fmt.Sprint(got.header, got.body); strings.Contains(all, ours) {
						at := strings.Index(all, ours)
						t.Errorf("%s, stream %v: %d %q", path, stream, got.status, all[max(0, at-50):at+len(ours)])
					} else if got.status == 0 {
						t.Errorf("%s: %v", path, got.cut)
					}
				}
			}
		})
	}
}

func TestHeadsAndUnchangedDocumentsPass(t *testing.T) {
	tries := 0
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		tries++
		switch r.URL.Path {
		case "/v1/files/missing":
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(404)
		case "/v1/files/same":
			w.Header().Set("Etag", "x")
			w.WriteHeader(304)
		case "/v1/files/gone":
			w.WriteHeader(204)
		default:
			w.Header().Set("Content-Length", "100")
			w.Header().Set("X-Query", r.URL.RawQuery)
		}
	}, func(s *setting) {
		s.upstream.BaseURL += "/v1"
		s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}}
	})
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"HEAD", "there", 200}, {"HEAD", "missing", 404}, {"GET", "same", 304}, {"HEAD", "same", 304}, {"DELETE", "gone", 204}, {"GET", "gone", 204},
	} {
		tries = 0
		got := do(t, c.method, front.URL+"/v1/files/"+c.path, "")
		if got.status != c.status || got.cut != nil || tries != 1 {
			t.Errorf("%s %s: %d %v %s after %d tries", c.method, c.path, got.status, got.header, got.body, tries)
		}
	}
	got := do(t, "HEAD", front.URL+"/v1/files/a?pageToken=2&page_token=3&after=4&access_token=x&token=y&apiKey=z&Key=k&sig=s&X-Amz-Signature=q", "")
	if q := got.header.Get("X-Query"); q != "after=4&pageToken=2&page_token=3" {
		t.Errorf("asked with %s", q)
	}
}
