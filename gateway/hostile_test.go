package gateway_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// dial connects to a gateway as a client that speaks HTTP by hand.
func dial(t *testing.T, front *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// answer reads what a client that speaks HTTP by hand gets.
func answer(t *testing.T, conn net.Conn) reply {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Hour))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return reply{cut: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

func TestBadRequestsAreRefusedInTheClientsWords(t *testing.T) {
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s goes upstream", r.Method, r.URL)
	}, func(s *setting) { s.MaxBodyMemory = 16 << 10 })
	for _, c := range []struct {
		path, body string
		status     int
		kind, want string
	}{
		{"/v1/chat/completions", `{"model":"m"`, 400, "invalid_request", "not a JSON object"},
		{"/v1/chat/completions", ``, 400, "invalid_request", "not a JSON object"},
		{"/v1/chat/completions", `["m"]`, 400, "invalid_request", "not a JSON object"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "invalid_request", "names no model"},
		{"/v1/chat/completions", `{"model":{"a":1}}`, 400, "invalid_request", "names no model"},
		{"/v1/messages", `{"model":"m","mod\u0065l":"dear"}`, 400, "invalid_request", `{"error":{"code":"invalid_request","message":"the request names its model more`},
		{"/v1beta/models/m:generateContent", `{"model":"models/dear"}`, 400, "invalid_request", `"status":"INVALID_ARGUMENT"`},
		{"/v1/chat/completions", `{"model":"unknown-` + theirs + `"}`, 404, "model_not_found", ": GET /v1/models lists the models"},
		{"/v1/chat/completions", `{"model":"m","x":"` + strings.Repeat("x", 5<<10) + `"}`, 413, "request_too_large", "4096 bytes"},
		{"/v1/files", `{}`, 404, "not_found", "unknown path"},
	} {
		got := post(t, front.URL+c.path, c.body)
		if got.status != c.status || got.header.Get("X-Sluice-Error") != c.kind || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %.60s: %d %s %s", c.path, c.body, got.status, got.header.Get("X-Sluice-Error"), got.body)
		}
	}
	if n := len(x.ended()); n != 0 {
		t.Errorf("%d permits were spent", n)
	}
}

// packed is a text in codings, one after the other. Deflate without zlib's frame, as some programs send it, is written "raw".
func packed(t *testing.T, text string, codings ...string) string {
	t.Helper()
	for _, name := range codings {
		var b bytes.Buffer
		var w io.WriteCloser
		switch name {
		case "gzip", "x-gzip":
			w = gzip.NewWriter(&b)
		case "deflate":
			w = zlib.NewWriter(&b)
		case "raw":
			w, _ = flate.NewWriter(&b, 9)
		case "zstd":
			w, _ = zstd.NewWriter(&b)
		default:
			continue
		}
		_, _ = io.WriteString(w, text)
		w.Close()
		text = b.String()
	}
	return text
}

func TestACompressedBodyIsSentDecompressed(t *testing.T) {
	long := `{"model":"alias","messages":[{"role":"user","content":"` + strings.Repeat("hello ", 1<<12) + `"}]}`
	want := strings.Replace(long, "alias", "m-2026", 1)
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != want || r.ContentLength != int64(len(want)) || r.Header["Content-Encoding"] != nil {
			t.Errorf("sent %d bytes, %v", r.ContentLength, r.Header)
		}
		whole(w, chatAnswer)
	}, nil)
	for _, how := range []string{"gzip", "x-gzip", "deflate", "raw", "zstd", "gzip, zstd", "ZSTD,gzip", "identity", "gzip, identity, deflate", ""} {
		body := packed(t, long, strings.Split(strings.ReplaceAll(strings.ToLower(how), " ", ""), ",")...)
		if got := post(t, front.URL+"/v1/chat/completions", body, "Content-Encoding", strings.Replace(how, "raw", "deflate", 1)); got.status != 200 {
			t.Errorf("%q: %d %s", how, got.status, got.body)
		}
	}
}

func TestABodyThatCannotBeDecompressedIsRefusedAsSuch(t *testing.T) {
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it is sent") }, func(s *setting) { s.MaxBodyMemory = 4 << 20 })
	chat, bomb := `{"model":"m","messages":[]}`, strings.Repeat(" ", 2<<20)
	nested := packed(t, strings.Repeat(packed(t, "", "gzip"), 1<<17), "gzip") // holds nothing, in a layer that is too long
	for _, c := range []struct {
		how, body string
		status    int
		want      string
	}{
		{"gzip", packed(t, bomb, "gzip"), 413, "too long: the maximum is 1048576 bytes"},
		{"deflate", packed(t, bomb, "deflate"), 413, "too long"},
		{"zstd", packed(t, bomb, "zstd"), 413, "too long"},
		{"zstd, gzip", packed(t, bomb, "zstd", "gzip"), 413, "too long"},
		{"gzip, gzip", nested, 413, "too long"},
		{"gzip", chat, 400, "cannot be decompressed: it is not complete and valid gzip"},
		{"zstd", chat, 400, "cannot be decompressed: it is not complete and valid zstd"},
		{"deflate", "x" + chat, 400, "cannot be decompressed: it is not complete and valid deflate"},
		{"gzip", packed(t, chat, "gzip")[:30], 400, "cannot be decompressed"},
		{"deflate", packed(t, chat, "deflate")[:20], 400, "cannot be decompressed"},
		{"zstd", packed(t, chat, "zstd")[:20], 400, "cannot be decompressed"},
		{"zstd", "\x28\xb5\x2f\xfd\x00\x88\x01\x00\x00", 400, "valid zstd with a window of at most 8 MiB"},
		{"zstd", "\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x01\x01\x00\x00", 400, "valid zstd with a window of at most 8 MiB"},
		{"gzip, zstd", packed(t, chat, "zstd"), 400, "not complete and valid gzip, zstd"},
		{"gzip", "", 400, "cannot be decompressed"},
		{"br", chat, 415, "the encodings br: the gateway supports at most 3 of gzip, deflate, zstd"},
		{"gzip, br", chat, 415, "gzip, deflate, zstd"},
		{"gzip, gzip, gzip, gzip", packed(t, chat, "gzip", "gzip", "gzip", "gzip"), 415, "at most 3"},
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
			got := post(t, front.URL+path, c.body, "Content-Encoding", c.how)
			if got.status != c.status || !strings.Contains(got.body, c.want) || !strings.Contains(got.body, `"error"`) ||
				(c.status == 415) != (got.header.Get("Accept-Encoding") == "gzip, deflate, zstd") {
				t.Errorf("%s of %d bytes: %d %s", c.how, len(c.body), got.status, got.body)
			}
		}
	}
	if n := len(x.ended()); n != 0 {
		t.Errorf("%d permits were spent", n)
	}
}

func TestABodyThatEndsTooSoonIsRefusedAsSuch(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it is sent") }, nil)
	conn := dial(t, front)
	send(t, conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{\"model\":\"m\"}")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, conn); got.status != 400 || !strings.Contains(got.body, "the request body is incomplete") {
		t.Errorf("%+v", got)
	}
}

func TestABodyThatComesTooSlowlyIsRefused(t *testing.T) {
	slow := base(func(w *piped, r *http.Request) { w.after(time.Minute, chatChunks); w.pw.Close() })
	within(t, slow, nil, func(t *testing.T, x *relayed) {
		dial := wire(t, x)
		const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
		for _, length := range []string{"Content-Length: 1000", "Content-Length: 5000000", "Transfer-Encoding: chunked"} {
			conn := dial()
			send(t, conn, head+length+"\r\n\r\n")
			go func() { // a byte now and then is no progress
				if length == "Transfer-Encoding: chunked" {
					_, _ = io.WriteString(conn, "fffff\r\n")
				}
				for err := error(nil); err == nil; time.Sleep(2 * time.Second) {
					_, err = io.WriteString(conn, "1")
				}
			}()
			begun := time.Now()
			got := answer(t, conn)
			if got.status != 408 || got.header.Get("X-Sluice-Error") != "request_timeout" || !got.closes() || time.Since(begun) > 32*time.Second {
				t.Errorf("%s: after %v: %+v", length, time.Since(begun), got)
			}
		}
		// One that comes in time is not cut off afterwards by the deadline of its body.
		conn := dial()
		send(t, conn, head+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(chatStream))+chatStream)
		if got := answer(t, conn); got.status != 200 || got.body != chatChunks {
			t.Errorf("%+v", got)
		}
	})
}

func (r reply) closes() bool { return r.header.Get("Connection") == "close" }

func TestAnUpstreamThatBehavesBadlyIsATypedError(t *testing.T) {
	t.Parallel()
	hijack := func(w http.ResponseWriter, text string) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = rw.WriteString(text)
		rw.Flush()
		conn.Close()
	}
	bad := map[string]func(http.ResponseWriter, *http.Request){
		"garbage": func(w http.ResponseWriter, r *http.Request) { hijack(w, "\x00\x01garbage\r\n\r\n") },
		"nothing": func(w http.ResponseWriter, r *http.Request) { hijack(w, "") },
		"a 10 MB header": func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 10<<20)+"\r\n\r\n")
		},
		"no JSON": func(w http.ResponseWriter, r *http.Request) { whole(w, "<html>") },
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
		},
		"switching": func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/steal", http.StatusTemporaryRedirect)
		},
	}
	for name, handler := range bad {
		t.Run(name, func(t *testing.T) {
			_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the gateway go
				handler(w, r)
			}, nil)
			for _, stream := range []string{"true", "false"} {
				got := post(t, front.URL+"/v1/chat/completions", `{"model":"m","messages":[],"stream":`+stream+`}`)
				switch {
				case got.cut != nil, got.header.Get("Location") != "", strings.Contains(got.body, ours):
					t.Errorf("stream %s: %+v", stream, got)
				case name == "no JSON" || name == "a redirect": // the provider's own answer
				case got.status != http.StatusBadGateway || !strings.Contains(got.body, `"error"`) || got.header.Get("X-Sluice-Error") == "":
					t.Errorf("stream %s: %+v", stream, got)
				}
			}
		})
	}
}

// TestALongBodyThatIsNotNeededIsTakenAllTheSame has clients that send all of it before they read, as many do: a server that closes over
// what it has not read breaks their connection, and they never hear why.
func TestALongBodyThatIsNotNeededIsTakenAllTheSame(t *testing.T) {
	t.Parallel()
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s goes upstream", r.Method, r.URL)
	}, func(s *setting) { s.MaxBodyMemory = 128 << 20 })
	long := strings.Repeat("x", 30<<20) // more than the network keeps
	for _, head := range []string{"Host: localhost", "Host: localhost\r\nConnection: close", "Host: localhost\r\nContent-Encoding: gzip", "Host: elsewhere.example"} {
		conn := dial(t, front)
		send(t, conn, fmt.Sprintf("POST /v1/messages/batches HTTP/1.1\r\n%s\r\nContent-Length: %d\r\n\r\n%s", head, len(long), long))
		if got := answer(t, conn); got.cut != nil || got.status/100 != 4 {
			t.Errorf("%s: %+v", head, got)
		}
	}
	conn := dial(t, front)
	send(t, conn, "POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
	if got := answer(t, conn); got.cut != nil || got.status != 404 {
		t.Errorf("who waits to be asked for its body gets %+v", got)
	}
}
