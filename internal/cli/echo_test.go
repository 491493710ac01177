package cli_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// echo is a server that remembers what it was asked and answers as OpenAI's chat does. It is safe for concurrent use.
type echo struct {
	status int           // of refusals; 0: it refuses nothing
	times  int           // how many requests are refused; 0: all
	retry  time.Duration // what a refusal says of the wait; 0: nothing
	delay  time.Duration // before the answer
	holds  bool          // it never answers
	end    chan struct{} // closed when the script ends

	mu   sync.Mutex
	asks []string // header and body of every request, one text each
	open int
	peak int
}

// echoes are those that scripts started, by address.
var echoes sync.Map

// ServeHTTP records the request and answers as the fields say.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var ask strings.Builder
	fmt.Fprintf(&ask, "%s %s\n", r.Method, r.URL.Path)
	r.Header.Write(&ask)
	fmt.Fprintf(&ask, "\n%s\n", body)
	n := e.begin(strings.ReplaceAll(ask.String(), "\r", ""))
	defer e.done()
	after := time.After(e.delay)
	if e.holds {
		after = nil
	}
	select {
	case <-after:
	case <-r.Context().Done():
		return
	case <-e.end:
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if e.status != 0 && (e.times == 0 || n <= e.times) {
		if e.retry > 0 {
			w.Header().Set("Retry-After-Ms", strconv.FormatInt(e.retry.Milliseconds(), 10))
		}
		w.WriteHeader(e.status)
		io.WriteString(w, `{"error":{"message":"not now","type":"odd"}}`)
		return
	}
	io.WriteString(w, `{"id":"x","object":"chat.completion","model":"echo","choices":[{"index":0,"finish_reason":"stop",`+
		`"message":{"role":"assistant","content":"So be it."}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`)
}

// begin records a request and returns its number.
func (e *echo) begin(ask string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asks = append(e.asks, ask)
	e.open++
	e.peak = max(e.peak, e.open)
	return len(e.asks)
}

func (e *echo) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
}

// echoNamed returns the echo whose address the variable holds.
func echoNamed(ts *testscript.TestScript, name string) *echo {
	v, ok := echoes.Load(ts.Getenv(name))
	if !ok {
		ts.Fatalf("no echo %s", name)
	}
	return v.(*echo)
}

// echo NAME [FIELD=VALUE...] serves an echo and puts its address into the variable NAME. Fields are status, times,
// retry, delay, holds, and tls=FILE, which serves TLS, writes the certificate to FILE, and puts the same address by a name
// that the certificate does not hold into NAME_LOCALHOST.
func cmdEcho(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "echo NAME [FIELD=VALUE...]")
	e := &echo{end: make(chan struct{})}
	certificate := ""
	for _, arg := range args[1:] {
		field, value, _ := strings.Cut(arg, "=")
		switch field {
		case "status":
			e.status = number(ts, value)
		case "times":
			e.times = number(ts, value)
		case "retry":
			e.retry = duration(ts, value)
		case "delay":
			e.delay = duration(ts, value)
		case "holds":
			e.holds = true
		case "tls":
			certificate = value
		default:
			ts.Fatalf("unknown field %q", field)
		}
	}
	web := httptest.NewUnstartedServer(e)
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // a handshake that fails is what a test is for
	if certificate == "" {
		web.Start()
	} else {
		web.StartTLS()
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
		ts.Check(os.WriteFile(ts.MkAbs(certificate), block, 0o644))
		ts.Setenv(args[0]+"_LOCALHOST", strings.Replace(web.URL, "127.0.0.1", "localhost", 1)) // not in the certificate
	}
	ts.Defer(func() {
		close(e.end)
		web.CloseClientConnections()
		web.Close()
	})
	ts.Setenv(args[0], web.URL)
	echoes.Store(web.URL, e)
}

// [!] asked NAME PATTERN demands that the pattern matches every request that an echo got (with !: none of them).
func cmdAsked(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, false, len(args) == 2, "[!] asked NAME PATTERN")
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	e := echoNamed(ts, args[0])
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asks) == 0 {
		ts.Fatalf("%s was asked nothing", args[0])
	}
	for i, ask := range e.asks {
		if re.MatchString(ask) == neg {
			ts.Fatalf("request %d of %d:\n%s", i+1, len(e.asks), ask)
		}
	}
}

// tries NAME N compares how many requests an echo got.
func cmdTries(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "tries NAME N")
	e := echoNamed(ts, args[0])
	e.mu.Lock()
	defer e.mu.Unlock()
	if want := number(ts, args[1]); len(e.asks) != want {
		ts.Fatalf("%s was asked %d times, want %d", args[0], len(e.asks), want)
	}
}

// peak NAME N compares how many requests were open at an echo at once, at most.
func cmdPeak(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "peak NAME N")
	e := echoNamed(ts, args[0])
	e.mu.Lock()
	defer e.mu.Unlock()
	if want := number(ts, args[1]); e.peak != want {
		ts.Fatalf("%s had %d requests open, want %d", args[0], e.peak, want)
	}
}

// waittries NAME N waits until an echo got so many requests.
func cmdWaittries(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "waittries NAME N")
	e, want := echoNamed(ts, args[0]), number(ts, args[1])
	await(ts, "requests at "+args[0], func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.asks) >= want
	})
}

// waittext FILE PATTERN waits until the file is there and the pattern matches its text.
func cmdWaittext(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "waittext FILE PATTERN")
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	await(ts, args[1]+" in "+args[0], func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(b)
	})
}

// ask FILE URL [n=N] [within=D] [least=D] sends N equal chat requests at once and writes what came of them: status line
// and headers of each answer, or "no answer" if none came within that time. All together must take the least time.
func cmdAsk(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "ask FILE URL [n=N] [within=D] [least=D]")
	n, within, least := 1, time.Minute, time.Duration(0)
	for _, arg := range args[2:] {
		field, value, _ := strings.Cut(arg, "=")
		switch field {
		case "n":
			n = number(ts, value)
		case "within":
			within = duration(ts, value)
		case "least":
			least = duration(ts, value)
		default:
			ts.Fatalf("unknown field %q", field)
		}
	}
	client := &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make([]string, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range answers {
		wg.Go(func() { answers[i] = askOnce(client, args[1]) })
	}
	wg.Wait()
	if took := time.Since(start); took < least {
		ts.Fatalf("answered in %s, want at least %s", took, least)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(answers, "")), 0o644))
}

// askOnce sends a request that declares 900 tokens of output, and returns what cmdAsk writes of the answer.
func askOnce(client *http.Client, url string) string {
	resp, err := client.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"sim-small","max_tokens":900,"messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		return "no answer\n"
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "torn answer\n"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "status %d\n", resp.StatusCode)
	resp.Header.Write(&text)
	return strings.ReplaceAll(text.String(), "\r", "")
}
