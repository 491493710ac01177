package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

// besieged is a gateway at a socket, before an upstream at another, that attacks are tried at. Tenants are listed, who may ask for m and
// mod only, poor, who has a budget, and any. The model that attacks are after is dear; cheap is another name for it.
type besieged struct {
	t           *testing.T
	front       *httptest.Server
	local       *httptest.Server // of the dashboard
	keys        map[string]string
	sent        atomic.Int64 // requests that reached the upstream
	redirected  atomic.Int64 // requests that followed the upstream's redirect
	redirecting atomic.Bool
}

// hostileModel is a name that the settings give to a model.
const hostileModel = `"><img/src=x/onerror=alert(1)>`

func besiege(t *testing.T) *besieged {
	b := &besieged{t: t}
	list, keys := withKeys([]gateway.Tenant{{Name: "listed", Models: []string{"m", "mod"}}, {Name: "poor", MaxCostDay: 1}, {Name: "any"}})
	b.keys = keys
	tenants, err := gateway.OpenTenants(gateway.TenantsConfig{Tenants: list, Spent: filepath.Join(t.TempDir(), "spent.json")})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.redirected.Add(1) }))
	t.Cleanup(elsewhere.Close)
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b.sent.Add(1)
		b.looksAt(r)
		if b.redirecting.Load() {
			http.Redirect(w, r, elsewhere.URL+"/v1/steal", http.StatusTemporaryRedirect)
			return
		}
		whole(w, chatAnswer)
	}, func(s *setting) {
		s.Tenants, s.Hosts = tenants, []string{"gateway.example"}
		s.Models = map[string]string{"cheap": "dear"}
		s.upstream.Models = map[string]string{"m": "m", "dear": "dear", hostileModel: "m"}
		s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}, {Path: "/v1/completions", Upstream: "up"}}
	})
	t.Cleanup(func() { tenants.Close() })
	b.front, b.local = front, httptest.NewServer(http.HandlerFunc(x.ServeUI))
	t.Cleanup(b.local.Close)
	return b
}

// looksAt checks what the upstream gets: never the dear model, a client's key, or a path that leads elsewhere.
func (b *besieged) looksAt(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	all := fmt.Sprint(r.URL, r.Host, r.Header, r.Trailer)
	switch {
	case strings.Contains(all, "dear") || strings.Contains(all, "slk-") || strings.Contains(all, "evil"):
		b.t.Errorf("the upstream is asked %s %s", r.Method, all)
	case r.Header.Get("Authorization") != "Bearer "+ours || len(r.Header["Authorization"]) != 1 || len(r.TransferEncoding) > 0:
		b.t.Errorf("the upstream is asked with %v, %v", r.Header, r.TransferEncoding)
	case path.Clean(r.URL.Path) != r.URL.Path || r.URL.EscapedPath() != r.URL.Path:
		b.t.Errorf("the upstream is asked for %s", r.URL)
	case strings.HasPrefix(r.URL.Path, "/v1/files"):
		return
	}
	var asked struct {
		Model string `json:"model"`
		User  string `json:"user"`
	}
	if kind := r.Header.Get("Content-Type"); json.Unmarshal(body, &asked) != nil || kind != "application/json" {
		b.t.Errorf("the upstream is sent %s as %s", body, kind)
	}
	if !strings.Contains(r.URL.Path, "/models/m:") && asked.Model != "m" || strings.Contains(strings.ReplaceAll(string(body), asked.User, ""), "dear") && asked.User != "" {
		b.t.Errorf("the upstream is sent %s", body)
	}
}

// raw sends a request that is written by hand, and returns the answer.
func (b *besieged) raw(front *httptest.Server, text string) reply {
	b.t.Helper()
	conn := dial(b.t, front)
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // it may be refused before its end
	return answer(b.t, conn)
}

// attack is a request, and the status that it is to get. Nothing of one that is refused may reach the upstream.
type attack struct {
	line    string // method and target; "" is a chat
	headers string // beside Host, each with its end of line
	body    string
	status  int
	want    string // in the answer
}

func (b *besieged) try(a attack, tenant string) {
	b.t.Helper()
	if a.line == "" {
		a.line = "POST /v1/chat/completions"
	}
	if !strings.HasPrefix(a.headers, "Host:") {
		a.headers = "Host: localhost\r\n" + a.headers
	}
	if tenant != "" {
		a.headers += "Authorization: Bearer " + b.keys[tenant] + "\r\n"
	}
	before := b.sent.Load()
	got := b.raw(b.front, fmt.Sprintf("%s HTTP/1.1\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", a.line, a.headers, len(a.body), a.body))
	if got.status != a.status || got.header.Get("Location") != "" || strings.Contains(got.body, ours) || !strings.Contains(got.body, a.want) {
		b.t.Errorf("%s as %s\n%s%s\n-> %d %v %v, want %d", a.line, tenant, a.headers, a.body, got.status, got.body, got.cut, a.status)
	}
	if sent := b.sent.Load() - before; (sent == 1) != (a.status == http.StatusOK) {
		b.t.Errorf("%s %s%s reaches the upstream %d times", a.line, a.headers, a.body, sent)
	}
}

// TestNoWayLeadsPastAModelList has all ways that are known to name a model.
func TestNoWayLeadsPastAModelList(t *testing.T) {
	b := besiege(t)
	const (
		messages = "POST /v1/messages"
		gemini   = "POST /v1beta/models/m:generateContent"
		chat     = `,"messages":[]}`
	)
	ways := []attack{
		// The model itself.
		{body: `{"model":"dear"` + chat, status: 403},
		{body: `{"model":"cheap"` + chat, status: 403},
		{body: `{"model":"M"` + chat, status: 403},
		{body: `{"model":"m "` + chat, status: 403},
		{body: `{"model":" m"` + chat, status: 403},
		{body: `{"model":"m\u0000"` + chat, status: 403},
		{body: `{"model":"m,dear"` + chat, status: 403},
		{body: `{"model":"m/../dear"` + chat, status: 403},
		{body: `{"model":"models/dear"` + chat, status: 403},
		{body: `{"model":["m","dear"]` + chat, status: 400},
		{body: `{"model":{"id":"dear"}` + chat, status: 400},
		{body: `{"model":null` + chat, status: 400},
		{body: `{"model":"m","model":"dear"` + chat, status: 400},
		{body: `{"model":"dear","model":"m"` + chat, status: 400},
		{body: `{"model":"m","Model":"dear"` + chat, status: 400},
		{body: `{"model":"m","m\u006fdel":"dear"` + chat, status: 400},
		{body: `{"Model":"m"` + chat, status: 400},
		{body: `{"model":"m"}{"model":"dear"}`, status: 400},
		{body: "\ufeff" + `{"model":"m"` + chat, status: 400},
		{body: `[{"model":"m"},{"model":"dear"}]`, status: 400},
		{body: `{'model':'dear'}`, status: 400},
		{body: `{"model":"m"/*,*/,"x":1}`, status: 400},

		// Fields that the endpoint does not have.
		{body: `{"model":"m","models":["dear"]` + chat, status: 400},
		{body: `{"model":"m","MODELS":["dear"]` + chat, status: 400},
		{body: `{"model":"m","mod\u0065ls":["dear"]` + chat, status: 400},
		{body: `{"model":"m","fallbacks":["dear"]` + chat, status: 400},
		{body: `{"model":"m","fallback_models":["dear"]` + chat, status: 400},
		{body: `{"model":"m","context_window_fallbacks":[{"m":["dear"]}]` + chat, status: 400},
		{body: `{"model":"m","extra_body":{"model":"dear"}` + chat, status: 400, want: `"param":"extra_body"`},
		{body: `{"model":"m","engine":"dear"` + chat, status: 400},
		{body: `{"model":"m","route":"fallback"` + chat, status: 400},
		{body: `{"model":"m","provider":{"only":["dear"]}` + chat, status: 400},
		{body: `{"model":"m","plugins":[{"id":"fusion","analysis_models":["dear"]}]` + chat, status: 400},
		{body: `{"model":"m","preset":"dear"` + chat, status: 400},
		{body: `{"model":"m","deployment_id":"dear"` + chat, status: 400},
		{body: `{"model":"m","custom_llm_provider":"dear"` + chat, status: 400},
		{body: `{"model":"m","litellm_metadata":{"model_group":"dear"}` + chat, status: 400},
		{body: `{"model":"m","compound_custom":{"models":{"answering_model":"dear"}}` + chat, status: 400},
		{body: `{"model":"m","":"dear"` + chat, status: 400},
		{line: messages, body: `{"model":"m","models":["dear"]` + chat, status: 400, want: `unknown field \"models\"`},
		{line: "POST /v1/messages/count_tokens", body: `{"model":"m","engine":"dear"` + chat, status: 400},
		{line: "POST /v1/embeddings", body: `{"model":"m","input":"x","engine":"dear"}`, status: 400},
		{line: "POST /v1/responses", body: `{"model":"m","input":"x","fallback_models":["dear"]}`, status: 400},
		{line: gemini, body: `{"contents":[],"models":["dear"]}`, status: 400},

		// Models that fields of the endpoint name.
		{line: messages, body: `{"model":"m","fallbacks":[{"model":"dear"}]` + chat, status: 403},
		{line: messages, body: `{"model":"m","fallbacks":"default"` + chat, status: 403},
		{line: messages, body: `{"model":"m","fallbacks":[{"m":["dear"],"model":"m"}]` + chat, status: 403},
		{line: messages, body: `{"model":"m","fallbacks":[{"m":["dear"]}]` + chat, status: 403},
		{line: messages, body: `{"model":"m","fallbacks":[` + strings.Repeat(`{"model":"m"},`, 200) + `{"model":"dear"}]` + chat, status: 403},
		{line: messages, body: `{"model":"m","tools":[{"type":"advisor_20260301","name":"advisor","model":"dear"}]` + chat, status: 403},
		{body: `{"model":"m","moderation":{"model":"dear"}` + chat, status: 403},
		{body: `{"model":"m","metadata":{"fallbacks":["dear"]}` + chat, status: 403},
		{body: `{"model":"m","metadata":{"model":{"name":"dear"}}` + chat, status: 403},
		{body: `{"model":"m","tools":[{"type":"openrouter:advisor","parameters":{"model":"dear"}}]` + chat, status: 403},
		{line: messages, body: `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"advisor_20260301","model":"dear"}}}]}]}`, status: 403},
		{line: "POST /v1/responses", body: `{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"image_generation","model":"dear"}]}]}`, status: 403},
		{line: "POST /v1/responses", body: `{"model":"m","input":"x","tools":[1,{"type":"image_generation","\u006dodel":"dear"}]}`, status: 403},
		{line: gemini, body: `{"contents":[],"generationConfig":{"routingConfig":{"manualMode":{"modelName":"dear"}}}}`, status: 403},
		{line: gemini, body: `{"contents":[],"generation_config":{"routing_config":{"manual_mode":{"model_name":"models/dear"}}}}`, status: 403},
		{line: gemini, body: `{"model":"models/dear","contents":[]}`, status: 400},
		{line: "POST /v1beta/models/m:batchEmbedContents", body: `{"requests":[{"model":"models/dear"}]}`, status: 400},
		{line: "POST /v1beta/models/m:countTokens", body: `{"generateContentRequest":{"model":"models/dear"}}`, status: 400},

		// Paths.
		{line: "POST /v1beta/models/dear:generateContent", body: `{"contents":[]}`, status: 403},
		{line: "POST /v1beta/models/%64ear:generateContent", body: `{"contents":[]}`, status: 403},
		{line: "POST /v1/models/cheap:streamGenerateContent?alt=sse", body: `{"contents":[]}`, status: 403},
		{line: "POST /v1beta/models/m:x/../dear:generateContent", body: `{"contents":[]}`, status: 404},
		{line: "POST /v1beta/models/m%2f..%2fdear:generateContent", body: `{"contents":[]}`, status: 404},
		{line: "POST /v1/engines/dear/completions", body: `{"prompt":"x"}`, status: 404},
		{line: "POST /openai/deployments/dear/chat/completions", body: `{"messages":[]}`, status: 404},
		{line: "GET /v1/models/dear", status: 404},
		{line: "POST /v1/completions", body: `{"model":"dear","prompt":"x"}`, status: 403},
		{line: "GET /v1/files", status: 403},
		{line: "POST /v1/messages/count_tokens", body: `{"model":"dear"` + chat, status: 403},

		// Forms of the body.
		{headers: "Content-Type: multipart/form-data; boundary=x\r\n", body: "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndear\r\n--x--\r\n", status: 400},
		{headers: "Content-Type: application/x-www-form-urlencoded\r\n", body: "model=dear", status: 400},
		{headers: "Content-Encoding: gzip\r\n", body: packed(t, `{"model":"dear"`+chat, "gzip"), status: 403},

		// What is sent, but without a word of another model.
		{body: `{"model":"m"` + chat, status: 200},
		{headers: "Content-Type: application/x-www-form-urlencoded\r\n", body: `{"model":"m","user":"&model=dear&"` + chat, status: 200},
		{headers: "Content-Type: application/json; charset=utf-7\r\n", body: `{"model":"m"` + chat, status: 200},
		{line: "POST /v1/chat/completions?model=dear&engine=dear&api-version=dear", body: `{"model":"m"` + chat, status: 200},
		{headers: "X-Model: dear\r\nX-Litellm-Model: dear\r\nX-Goog-Request-Params: model=dear\r\nCf-Aig-Fallback: dear\r\n", body: `{"model":"m"` + chat, status: 200},
		{headers: "X-Portkey-Config: {\"fallback\":\"dear\"}\r\nHelicone-Fallbacks: [\"dear\"]\r\nX-Http-Method-Override: dear\r\n", body: `{"model":"m"` + chat, status: 200},
		{body: `{"model":"m","moderation":{"model":"mod"}` + chat, status: 200},
		{line: messages, body: `{"model":"m","fallbacks":[{"model":"m","speed":"fast","thinking":{"type":"disabled"}}]` + chat, status: 200},
		{line: messages, body: `{"model":"m","tools":[{"name":"buy","input_schema":{"type":"object","properties":{"model":{"type":"string"}}}}]` + chat, status: 200},
		{line: gemini, body: `{"contents":[],"system_instruction":{},"generationConfig":{"responseSchema":{"type":"OBJECT","properties":{"model":{"type":"STRING"}}}}}`, status: 200},
	}
	for _, a := range ways {
		b.try(a, "listed")
	}
	if got := b.raw(b.front, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+b.keys["listed"]+"\r\n\r\n"); strings.Contains(got.body, "dear") {
		t.Errorf("the list has %s", got.body)
	}
	// A budget binds as well: what another model costs is not known.
	for _, a := range ways {
		if a.status == 400 {
			b.try(a, "poor")
		}
	}
}

func TestNothingIsSmuggled(t *testing.T) {
	b := besiege(t)
	key := "Authorization: Bearer " + b.keys["listed"] + "\r\n"
	const good, dear = `{"model":"m","messages":[]}`, `{"model":"dear","messages":[]}`
	inner := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", b.keys["any"], len(dear), dear)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + key
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	for _, text := range []string{
		head + length(4) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding: chunked\r\n" + length(6) + "\r\n0\r\n\r\nG",
		head + length(5) + length(len(good)) + "\r\n" + good,
		head + "Content-Length: 5, 27\r\n\r\n" + good,
		head + "Content-Length: +27\r\n\r\n" + good,
		head + "Content-Length: -1\r\n\r\n" + good,
		head + "Content-Length: 0x1b\r\n\r\n" + good,
		head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding:\x0bchunked\r\n" + length(len(good)) + "\r\n" + good,
		head + "Transfer-Encoding : chunked\r\n" + length(len(good)) + "\r\n" + good,
		head + "Transfer\xadEncoding: chunked\r\n" + length(len(good)) + "\r\n" + good,
		head + "Transfer-Encoding: chunked\r\n\r\n1b;ext=\"\r\n" + good + "\r\n0\r\n\r\n" + inner,
		head + length(len(good)) + "Transfer-Encoding: chunked\r\n\r\n1b\r\n" + good + "\r\n0\r\n\r\n" + inner,
		head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + good,
		head + "Transfer-Encoding: chunked\r\n\r\n-1b\r\n" + good + "\r\n0\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n1b\n" + good + "\n0\n\n" + inner,
		head + "X: y\r\n folded: z\r\nBad Name: 1\r\n" + length(len(good)) + "\r\n" + good,
		head + "X: a\x00b\r\n" + length(len(good)) + "\r\n" + good,
		strings.Replace(head, " HTTP/1.1", " x HTTP/1.1", 1) + length(len(good)) + "\r\n" + good,
		strings.Replace(head, "HTTP/1.1", "HTTP/0.9", 1) + length(len(good)) + "\r\n" + good,
		strings.Replace(head, "HTTP/1.1", "HTTP/1.1 ", 1) + length(len(good)) + "\r\n" + good,
		strings.Replace(head, "Host: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n", 1) + length(len(good)) + "\r\n" + good,
		strings.Replace(head, "Host: localhost\r\n", "", 1) + length(len(good)) + "\r\n" + good,
		head + "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + length(len(dear)) + "\r\n" + dear,
		head + "Expect: 100-continue, x\r\n" + length(len(dear)) + "\r\n" + dear,
		head + "Connection: Authorization, close\r\nTrailer: X-Model\r\nTransfer-Encoding: chunked\r\n\r\n1b\r\n" + good + "\r\n0\r\nX-Model: dear\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn := dial(t, b.front)
		_, _ = io.WriteString(conn, text)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite() // so that all that is there is read
		all, _ := io.ReadAll(conn)
		conn.Close()
		if n := bytes.Count(all, []byte("HTTP/1.1 200")); n > 1 || bytes.Contains(all, []byte("HTTP/1.1 101")) {
			t.Errorf("%q gets %q", text, all)
		}
	}
}

func TestARequestInChunksIsTheLastOfItsConnection(t *testing.T) {
	b := besiege(t)
	const good = `{"model":"m","messages":[]}`
	next := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" // what a proxy that counts by Content-Length may take for the body
	for _, both := range []string{"", "Content-Length: 27\r\n"} {
		for line, body := range map[string]string{"POST /v1/chat/completions": "1b\r\n" + good + "\r\n", "POST /healthz": "", "POST /nowhere": "1b\r\n" + good + "\r\n"} {
			conn := dial(t, b.front)
			send(t, conn, line+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+b.keys["listed"]+"\r\n"+both+"Transfer-Encoding: chunked\r\n\r\n"+body+"0\r\n\r\n"+next)
			all, _ := io.ReadAll(conn) // it may be reset
			conn.Close()
			chat := strings.Contains(line, "chat") && both == ""
			if n := bytes.Count(all, []byte("HTTP/1.1 ")); n != 1 || chat && !bytes.HasPrefix(all, []byte("HTTP/1.1 200 ")) {
				t.Errorf("%s, %q: %d answers: %s", line, both, n, all)
			}
		}
	}
}

func TestHostAndOriginTricksAreRefused(t *testing.T) {
	b := besiege(t)
	const chat = `{"model":"m","messages":[]}`
	for _, host := range []string{
		"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example#localhost", "localhost@evil.example", "evil.example:8787",
		"gateway.example.evil.example", "xgateway.example", "0.0.0.0", "192.0.2.1", "localhost:80@evil.example", "[::ffff:192.0.2.1]", "evil.example\\localhost", "",
	} {
		a := attack{headers: "Host: " + host + "\r\n", body: chat, status: 403}
		if strings.ContainsAny(host, `#\@`) || host == "" { // the server's to refuse, or the gateway's
			if got := b.raw(b.front, "POST /v1/chat/completions HTTP/1.1\r\n"+a.headers+"Content-Length: 0\r\n\r\n"); got.status != 400 && got.status != 403 {
				t.Errorf("host %q: %d %s", host, got.status, got.body)
			}
			continue
		}
		b.try(a, "any")
	}
	b.try(attack{line: "POST http://evil.example/v1/chat/completions", body: chat, status: 403}, "any") // it counts before Host
	b.try(attack{headers: "X-Forwarded-Host: evil.example\r\n", body: chat, status: 200}, "any")
	for headers, status := range map[string]int{
		"Origin: null": 403, "Origin: ": 403, "Origin: https://evil.example": 403, "Origin: https://localhost.evil.example": 403,
		"Origin: http://localhost:8443": 403, "Origin: https://evil.example/http://localhost": 403, "Origin: file://": 403, "Origin: http://127.0.0.1:1": 403,
		"Origin: http://localhost\r\nOrigin: https://evil.example": 403,
		"Origin: http://localhost https://evil.example":            403, "Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403,
		"Origin: https://evil.example\r\nSec-Fetch-Site: same-origin": 403, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nReferer: http://localhost/": 403,
		"Origin: http://localhost": 200, "Origin: http://LOCALHOST": 200, "Sec-Fetch-Site: none": 200, "Sec-Fetch-Site: same-origin": 200,
	} {
		b.try(attack{headers: headers + "\r\n", body: chat, status: status}, "any")
		b.try(attack{headers: "Host: gateway.example\r\n" + strings.NewReplacer("localhost", "gateway.example", "LOCALHOST", "GATEWAY.example").Replace(headers) + "\r\n", body: chat, status: status}, "any")
	}
	for _, line := range []string{"OPTIONS /v1/chat/completions", "GET /v1/models", "GET /healthz"} {
		b.try(attack{line: line, headers: "Sec-Fetch-Site: cross-site\r\nAccess-Control-Request-Method: POST\r\n", status: 403}, "any")
	}
}

func TestNoPathLeadsOut(t *testing.T) {
	b := besiege(t)
	for _, target := range []string{
		"/v1/files/../chat/completions", "/v1/files/..", "/v1/files/%2e%2e/models", "/v1/files/%2e%2e%2fmodels", "/v1/files/..%5cmodels", `/v1/files/..\models`,
		"/v1/files//evil.example", "/v1/files/...", "/v1/files/a/./b", "/v1/files/%00", "/v1/files/a%0d%0aX:%20y", "/v1/files;/../models", "/v1/files/%25%32%65", "/v1/files/a%252f..", "/v1/filesystem",
		"/v1beta/models/..%2F..%2Fadmin:generateContent", "/v1beta/models/%252e%252e:generateContent", "/v1/models/m%00:generateContent",
		"/V1/files", "//v1/files", "/v1//files", "/../../etc/passwd", "/ui/../gateway.go", "/ui/%2e%2e/page.html", "//evil.example", `/\evil.example`, "/%2f%2fevil.example",
		"/v1/chat/completions/", "/v1/chat/completions/../../admin", "/v1/chat/completions%00", "/v1/chat/completions;x", "/healthz/../ui", "/debug/pprof/", "/debug/vars", "/.git/config",
	} {
		for _, method := range []string{"GET", "POST"} {
			b.try(attack{line: method + " " + target, body: "{}", status: 404}, "any")
		}
	}
	for _, method := range []string{"TRACE", "TRACK", "CONNECT"} {
		b.try(attack{line: method + " /v1/files", status: 404}, "any")
	}
	b.try(attack{line: "GET /v1/files/abc", status: 200}, "any")
}

func TestNoRedirectIsFollowedOrGiven(t *testing.T) {
	b := besiege(t)
	b.redirecting.Store(true)
	before := b.sent.Load()
	for _, line := range []string{"POST /v1/chat/completions", "POST /v1/messages", "GET /v1/files/a"} {
		body := `{"model":"m","messages":[]}`
		got := b.raw(b.front, fmt.Sprintf("%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", line, b.keys["any"], len(body), body))
		if got.header.Get("Location") != "" || got.status == 200 {
			t.Errorf("%s: %d %v", line, got.status, got.header)
		}
	}
	if b.sent.Load() == before || b.redirected.Load() > 0 {
		t.Errorf("%d requests were sent, and %d followed where the upstream leads", b.sent.Load()-before, b.redirected.Load())
	}
}

func TestNoTextOfAClientIsMarkupOfThePage(t *testing.T) {
	b := besiege(t)
	evil := []string{`<script>alert(1)</script>`, hostileModel, `'-alert(1)-'`, `</title><svg/onload=alert(1)>`, `{{.}}${alert(1)}`, `javascript:alert(1)`}
	for _, text := range evil {
		quoted, _ := json.Marshal(text)
		b.try(attack{headers: "X-Request-Id: " + text + "\r\nUser-Agent: " + text + "\r\nX-Sluice-Session: " + text + "\r\n", body: `{"model":"m","messages":[]}`, status: 200}, "any")
		status := 404
		if text == hostileModel {
			status = 200
		}
		b.try(attack{headers: "X-Request-Id: " + text + "\r\n", body: `{"model":` + string(quoted) + `,"messages":[]}`, status: status}, "any")
		got := b.raw(b.front, "GET /"+strings.ReplaceAll(text, " ", "")+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if kind := got.header.Get("Content-Type"); kind != "application/json" && !strings.HasPrefix(kind, "text/plain") {
			t.Errorf("an error that has a client's text is %s: %s", kind, got.body)
		}
	}
	got := b.raw(b.local, "GET /ui HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if got.status != 200 || !strings.Contains(got.body, "alert(1)") {
		t.Fatalf("%d: the page shows nothing of the requests", got.status)
	}
	for _, text := range evil[:5] {
		if slices.Contains([]string{"'", "{"}, text[:1]) {
			continue // which is no markup where texts stand
		}
		if strings.Contains(got.body, text) {
			t.Errorf("the page has %s", text)
		}
	}
	for name, want := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if !strings.Contains(got.header.Get(name), want) {
			t.Errorf("%s is %q", name, got.header.Get(name))
		}
	}
}
