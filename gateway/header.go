package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/provider"
)

// ofConnection reports whether a header is about one connection (RFC 9110, section 7.6.1), or says how long a body is, which is
// said anew.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate",
		"Content-Length":
		return true
	}
	return false
}

// notSent are headers that only the gateway is to know, or that would speak for an account which is not the client's: a key of
// another organization is refused. Those that hold credentials are known by provider.IsSecretHeader.
var notSent = map[string]bool{
	"Expect": true, "Host": true, "Accept-Encoding": true, "Origin": true, "Referer": true,
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true,
	"Openai-Organization": true, "Openai-Project": true, "X-Goog-User-Project": true,
	"Anthropic-Organization-Id": true, "Anthropic-Workspace-Id": true, "Anthropic-User-Profile-Id": true,
}

// ofProxy are headers of proxies before the gateway, beside X-Forwarded-….
var ofProxy = map[string]bool{
	"Forwarded": true, "Via": true, "X-Real-Ip": true, "True-Client-Ip": true, "X-Client-Ip": true, "Cf-Connecting-Ip": true,
	"Cf-Connecting-Ipv6": true, "X-Ms-Client-Principal": true, "Tailscale-User-Login": true,
}

// outgoing are the headers of a client's request that go upstream.
func outgoing(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		if !ofConnection(name) && !notSent[name] && !ofProxy[name] && !besides(name) {
			out[name] = values
		}
	}
	dropNamed(out, h)
	return out
}

// knownHeaders are headers of the APIs that are served, of their SDKs and of traces.
var knownHeaders = map[string]bool{
	"Accept": true, "Accept-Language": true, "User-Agent": true, "Idempotency-Key": true, "X-Request-Id": true, "X-Client-Request-Id": true,
	"Anthropic-Version": true, "Anthropic-Beta": true, "Openai-Beta": true, "X-Goog-Api-Client": true, "Traceparent": true, "Tracestate": true,
	"X-App": true, "Originator": true, "Version": true, // of Claude Code and Codex
}

// known reports whether a header is one of those, or tells a session.
func known(name string) bool {
	return knownHeaders[name] || strings.HasPrefix(name, "X-Stainless-") || slices.Contains(sessionHeaders, name)
}

// besides reports whether a header that has no one name stays here.
func besides(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Sluice-") || strings.HasPrefix(name, "Sec-") ||
		name != "Idempotency-Key" && provider.IsSecretHeader(name)
}

// notReturned are headers of an answer that would let the provider set what is the gateway's.
var notReturned = map[string]bool{"Set-Cookie": true, "Alt-Svc": true, "Strict-Transport-Security": true}

// returned puts the headers of an answer that the client gets into its own.
func returned(to, from http.Header) {
	for name, values := range from {
		if !ofConnection(name) && !notReturned[name] && !strings.HasPrefix(name, "Access-Control-") {
			to[name] = values
		}
	}
	dropNamed(to, from)
}

// dropNamed takes out those headers that a message says are about its connection.
func dropNamed(out, message http.Header) {
	for _, line := range message["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
}

// query are the members of a client's address that go upstream with a known endpoint. Others may hold its key.
func query(u *url.URL) string {
	if u.RawQuery == "" || u.Query().Get("beta") != "true" { // of Anthropic's SDKs
		return ""
	}
	return "beta=true"
}

// queryBut are all members but those that hold a key.
func queryBut(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	all := u.Query()
	for name := range all {
		if isSecretMember(strings.ToLower(name)) {
			delete(all, name)
		}
	}
	return all.Encode()
}

// isSecretMember reports whether a member of an address may hold a key, rather than where a list goes on.
func isSecretMember(name string) bool {
	if name == "pagetoken" || name == "page_token" {
		return false
	}
	return provider.IsSecretHeader(name) || name == "sig" || strings.Contains(name, "signature")
}

// sessionHeaders tell which session of an agent a request is of: ours, and those that agents send by themselves.
var sessionHeaders = []string{
	"X-Sluice-Session",
	"X-Claude-Code-Session-Id", // https://code.claude.com/docs/en/llm-gateway
	"X-Qwen-Code-Session-Id",
	"X-Opencode-Session", "X-Session-Affinity", // opencode
	"Session_id", "Session-Id", "Conversation_id", // Codex, of several versions
	"X-Session-Id",
}

// sessionOf is the session that a request is of; "" if it does not say.
func sessionOf(h http.Header) string {
	const longest = 256
	for _, name := range sessionHeaders {
		if values := h[name]; len(values) > 0 && values[0] != "" {
			return values[0][:min(len(values[0]), longest)]
		}
	}
	return ""
}

// credentials are the keys that a request shows, wherever clients put them, each once; of more than one, the first two.
func credentials(r *http.Request) (all []string) {
	add := func(keys ...string) {
		for _, key := range keys {
			if key != "" && len(all) < 2 && !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	for _, name := range [...]string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		add(r.Header[name]...)
	}
	for _, value := range r.Header["Authorization"] {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			add(strings.TrimSpace(token))
		}
	}
	if r.URL.RawQuery != "" {
		add(r.URL.Query()["key"]...)
	}
	return all
}
