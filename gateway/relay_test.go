package gateway_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

func TestStreamsStateTheirUsageToTheGatewayAlone(t *testing.T) {
	asked := make(chan string, 10)
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked <- string(b)
		events(w, chatChunks[:40], chatChunks[40:], usageChunk+"\n", "\ndata: [DONE]\n\n")
	}, nil)
	got := post(t, front.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`)
	if want := chatChunks + "data: [DONE]\n\n"; got.body != want || got.cut != nil || got.status != 200 {
		t.Errorf("the client gets %d %q, %v", got.status, got.body, got.cut)
	}
	if body := <-asked; body != `{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}` {
		t.Errorf("the upstream is asked %s", body)
	}
	own := `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`
	if got := post(t, front.URL+"/v1/chat/completions", own); got.body != chatChunks+usageChunk+"\n\ndata: [DONE]\n\n" || <-asked != own {
		t.Errorf("who asks for it gets %q", got.body)
	}
	for _, o := range x.ended() {
		if o.Kind != sluice.OK || !o.HasUsage || o.Usage.Input != 9 || o.Usage.Output != 2 {
			t.Errorf("the permit came back with %+v", o)
		}
	}
}

func TestWhoRefusesTheQuestionIsNotAsked(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "stream_options") {
			w.WriteHeader(422)
		}
		events(w, chatChunks, usageChunk+"\n\n")
	}, func(s *setting) { s.upstream.Provider.UsageUnasked = true })
	got := post(t, front.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`)
	if got.status != 200 || got.body != chatChunks+usageChunk+"\n\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestWhoRefusesTheQuestionIsAskedWithoutItFromThenOn(t *testing.T) {
	asked := make(chan bool, 10)
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		question := strings.Contains(string(b), "stream_options")
		if asked <- question; question {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error"}}`)
			return
		}
		events(w, chatChunks, "data: [DONE]\n\n")
	}, nil)
	for range 3 {
		if got := post(t, front.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`); got.status != 200 || got.body != chatChunks+"data: [DONE]\n\n" {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if got := post(t, front.URL+"/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`); got.status != 400 {
		t.Errorf("a client's own question gets %d %s", got.status, got.body)
	}
	close(asked)
	var questions []bool
	for question := range asked {
		questions = append(questions, question)
	}
	if !slices.Equal(questions, []bool{true, false, false, false, true}) {
		t.Errorf("requests with the question: %v", questions)
	}
}

func TestEventsArePassedOnAtOnce(t *testing.T) {
	next := make(chan string)
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		for part := range next {
			events(w, part)
		}
	}, nil)
	go func() { next <- "event: message_start\ndata: {\"type\":\"message_start\"}\n\n" }()
	resp, err := http.Post(front.URL+"/v1/messages", "application/json", strings.NewReader(`{"model":"m","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"event: message_start", "event: a", "event: b", "event: c"} {
		if want != "event: message_start" {
			next <- want + "\ndata: {}\n\n" // not before the one before it was read
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(line) == want {
				break
			}
		}
	}
	close(next)
}

func TestAnswersAreReturnedAsTheProviderSentThem(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Request-Id", "req_1")
		h.Set("Set-Cookie", "a=b")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Alt-Svc", `h3=":443"`)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("X-Ratelimit-Limit-Requests", "100")
		whole(w, chatAnswer)
	}, nil)
	got := post(t, front.URL+"/chat/completions", `{"model":"m","messages":[]}`)
	if got.body != chatAnswer || got.header.Get("X-Request-Id") != "req_1" || got.header.Get("X-Ratelimit-Limit-Requests") != "100" {
		t.Errorf("%q with %v", got.body, got.header)
	}
	for _, name := range []string{"Set-Cookie", "X-Hop", "Keep-Alive", "Alt-Svc", "Access-Control-Allow-Origin"} {
		if got.header.Get(name) != "" {
			t.Errorf("the header %s of the upstream's connection is passed on", name)
		}
	}
}

// credentials are all the places in which a client may show its key.
var credentials = []string{"Authorization", "authorization", "AUTHORIZATION", "X-Api-Key", "x-api-key", "Api-Key", "api-key", "X-Goog-Api-Key",
	"x-goog-api-key", "Cookie", "cookie", "Proxy-Authorization", "X_Api_Key", "X-Amz-Security-Token", "Openai-Organization",
	"OpenAI-Project", "X-Sluice-Session", "Cf-Access-Jwt-Assertion", "X-Goog-Iap-Jwt-Assertion", "X-Amzn-Oidc-Data", "X-Ms-Client-Principal"}

func TestNoCredentialOfAClientGoesUpstream(t *testing.T) {
	seen := make(chan string, 1)
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		head, _ := json.Marshal(r.Header)
		seen <- r.URL.String() + " " + string(head) + string(b)
		whole(w, chatAnswer)
	}, func(s *setting) {
		s.upstream.Models["gemini-2.5-flash"] = "gemini-2.5-flash"
		s.Header = http.Header{"x-set": {"by-the-gateway"}}
		s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}}
	})
	paths := []string{"/v1/chat/completions", "/v1/v1/chat/completions", "/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages",
		"/v1/messages/count_tokens", "/v1beta/models/gemini-2.5-flash:generateContent", "/v1/models/gemini-2.5-flash:countTokens",
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent", "/v1/files", "/v1/files/a/content"}
	for _, path := range paths {
		body := `{"model":"m","messages":[]}`
		if strings.Contains(path, "gemini") {
			body = `{"contents":[]}`
		}
		for _, query := range []string{"", "?key=" + theirs, "?beta=true&key=" + theirs + "&api_key=" + theirs, "?access_token=" + theirs} {
			for i := 0; i <= len(credentials); i++ {
				headers := []string{"X-Kept", "yes", "X-Set", "by-the-client"}
				if i < len(credentials) {
					headers = append(headers, credentials[i], "Bearer "+theirs)
				}
				got := post(t, front.URL+path+query, body, headers...)
				if got.status != 200 {
					t.Fatalf("%s%s: %d %s", path, query, got.status, got.body)
				}
				if up := <-seen; strings.Contains(up, theirs) {
					t.Errorf("%s%s with %v: the upstream sees %s", path, query, headers, up)
				} else if !strings.Contains(up, ours) || !strings.Contains(up, "X-Kept") || strings.Count(up, "by-the-") != strings.Count(up, "by-the-gateway") {
					t.Errorf("%s: the upstream sees %s", path, up)
				}
				if i > 0 && query != "" {
					break // each header alone will do
				}
			}
		}
	}
}

func TestAClientThatNeverReadsIsGivenUp(t *testing.T) {
	var cut time.Duration
	endless := base(func(w *piped, r *http.Request) {
		begun := time.Now()
		for w.ctx.Err() == nil {
			w.after(time.Second, "data: {}\n\n")
		}
		cut = time.Since(begun)
	})
	within(t, endless, nil, func(t *testing.T, x *relayed) {
		conn := wire(t, x)()
		send(t, conn, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 27\r\n\r\n"+`{"model":"m","stream":true}`)
		time.Sleep(time.Second)
		x.Wait()
		synctest.Wait()
		if cut < time.Minute || cut > 63*time.Second {
			t.Errorf("the upstream is read from for %v", cut)
		}
	})
}

func TestConnectionsToTheUpstreamAreUsedAgain(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var opened atomic.Int32
		up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want := map[bool]int{false: 1, true: 2}[http2]; r.ProtoMajor != want {
				t.Errorf("asked by %s", r.Proto)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/v1/messages" {
				events(w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
				return
			}
			whole(w, chatAnswer)
		}))
		up.EnableHTTP2 = http2
		up.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		}
		if http2 {
			up.StartTLS()
		} else {
			up.Start()
		}
		t.Cleanup(up.Close)
		base := provider.NewBase(4)
		t.Cleanup(base.CloseIdleConnections)
		if http2 {
			base.TLSClientConfig = up.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		}
		x := relay(t, up.URL, func(s *setting) { s.Base = base })
		for range 5 {
			for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
				if got := ask(x, t.Context(), path, chatStream); got.status != 200 || got.cut != nil {
					t.Errorf("%+v", got)
				}
			}
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("HTTP/2 %v: %d connections", http2, n)
		}
	}
}

func TestAStreamThatLivesHasNoTotalAndMayLastLongerThanAWrite(t *testing.T) {
	slow := base(func(w *piped, r *http.Request) {
		for range 80 {
			w.after(119*time.Second, "data: {}\n\n")
		}
		w.pw.Close()
	})
	within(t, slow, nil, func(t *testing.T, x *relayed) {
		conn := wire(t, x)()
		send(t, conn, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 27\r\n\r\n"+`{"model":"m","stream":true}`)
		if got := answer(t, conn); got.body != strings.Repeat("data: {}\n\n", 80) || got.cut != nil {
			t.Errorf("%+v", got)
		}
	})
}
