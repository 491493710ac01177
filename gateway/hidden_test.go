package gateway_test

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// forms are how an upstream may write a key.
var forms = map[string]func(key string) string{
	"plain":         func(key string) string { return key },
	"JSON":          func(key string) string { return strings.ReplaceAll(key, "/", `\/`) },
	"JSON numbers":  func(key string) string { return eachByte(key, `\u%04x`) },
	"percent":       func(key string) string { return eachByte(key, "%%%02X") },
	"HTML":          func(key string) string { return eachByte(key, "&#%d;") },
	"HTML, long":    func(key string) string { return eachByte(key, "&#%040d;") },
	"hexadecimal":   func(key string) string { return hex.EncodeToString([]byte(key)) },
	"base64":        func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) },
	"base64 behind": func(key string) string { return base64.URLEncoding.EncodeToString([]byte("u:" + key)) },
	"two words":     func(key string) string { return key[:len(key)/2] + " " + key[len(key)/2:] },
	"unseen":        func(key string) string { return eachByte(key, "%c\u034f\U000e0100\u3164") },
}

func eachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func TestAnswersHideTheSecretsOfARequestInEveryForm(t *testing.T) {
	const short, ofHeader = "k3y/+9", "header/secret+of-the-operator"
	for name, form := range forms {
		for _, secret := range []string{ours, short, ofHeader} {
			said := form(secret)
			if len(secret) < 8 && (strings.HasPrefix(name, "base64") || name == "hexadecimal") {
				continue
			}
			_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if strings.HasSuffix(r.URL.Path, "completions") {
					half := len(said) / 2
					events(w, chatChunks, `data: {"x":"`+said[:half], said[half:]+`"}`+"\n\n", "data: [DONE]\n\n")
					return
				}
				whole(w, `{"x":"`+said+`"}`)
			}, func(s *setting) {
				s.upstream.Keys = []provider.Key{{From: "KEY", Value: ours}}
				if secret == short {
					s.upstream.Keys[0].Value = short
				}
				s.Header = http.Header{"X-Team-Token": {ofHeader}}
				s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}}
			})
			for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
				got := post(t, front.URL+path, `{"model":"m","stream":true}`)
				if got.status != 200 || !strings.Contains(got.body, "*") || strings.Contains(got.body, said) ||
					len(said) > 24 && strings.Contains(got.body, said[len(said)-24:]) {
					t.Errorf("%s: %s as %s: %d %s", path, secret, name, got.status, got.body)
				}
				for line := range strings.SplitSeq(got.body, "\n") {
					if data := strings.TrimPrefix(line, "data: "); data != "" && data != "[DONE]" && !json.Valid([]byte(data)) {
						t.Errorf("%s: %s as %s is not JSON: %s", path, secret, name, line)
					}
				}
			}
		}
	}
}

func TestHeadersHideTheSecretsOfARequest(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Said", "it is "+ours)
		w.Header().Set("X-"+ours, "1")
		w.Header().Set("Content-Encoding", r.Header.Get("Content-Type"))
		if strings.HasSuffix(r.URL.Path, "files") {
			w.Header().Set("Content-Encoding", ours)
		}
		whole(w, `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`)
	}, func(s *setting) { s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}} })
	for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
		got := post(t, front.URL+path, `{"model":"m"}`)
		if text := strings.ToLower(fmt.Sprint(got.body, got.header)); strings.Contains(text, strings.ToLower(ours)) {
			t.Errorf("%s: %d %s", path, got.status, text)
		}
	}
}

func TestAKeyThatIsAWordStaysInAnswers(t *testing.T) {
	for _, key := range []string{"none", "ollama", "0000"} {
		_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
			whole(w, `{"choices":[{"message":{"content":"ollama: none of 0000"}}]}`)
		},
			func(s *setting) { s.upstream.Keys = []provider.Key{{From: "KEY", Value: key}} })
		if got := post(t, front.URL+"/v1/chat/completions", `{"model":"m"}`); !strings.Contains(got.body, "ollama: none of 0000") {
			t.Errorf("%s: %s", key, got.body)
		}
	}
}

func TestCompressedAnswersHideNoKey(t *testing.T) {
	pack := map[string]func(w io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"Deflate": func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 9); return f },
		"br":      func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	}
	for how, packer := range pack {
		for _, long := range []int{0, 2 << 20} {
			text := chatChunks + `data: {"x":"` + strings.Repeat("x", long) + ours + `"}` + "\n\ndata: [DONE]\n\n"
			_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("the upstream is asked for %q", got)
				}
				w.Header().Set("Content-Encoding", how)
				w.Header().Set("Content-Type", "text/event-stream")
				p := packer(w)
				fmt.Fprint(p, text)
				p.Close()
			}, func(s *setting) { s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}} })
			for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
				got := post(t, front.URL+path, `{"model":"m","stream":true}`, "Accept-Encoding", "gzip, deflate, br")
				if how == "br" {
					if got.status != http.StatusBadGateway || strings.Contains(got.body, ours) {
						t.Errorf("%s %s: %d %.200s", path, how, got.status, got.body)
					}
					continue
				}
				want := strings.Replace(text, ours, strings.Repeat("*", len(ours)), 1)
				if got.status != 200 || got.body != want || got.header.Get("Content-Encoding") != "" || got.cut != nil {
					t.Errorf("%s %s of %d: %d %v %.200s", path, how, long, got.status, got.header, got.body)
				}
			}
		}
	}
}
