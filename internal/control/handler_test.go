package control_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/control"
	"github.com/sluice-llm/sluice/limits"
)

// double is a Target that remembers what was done to it.
type double struct {
	mu     sync.Mutex
	phase  control.Phase
	limits map[limits.Dimension]int
	acts   int
	err    error
	panics bool
}

func (d *double) Status() (control.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panics {
		panic("no status")
	}
	return control.Status{Phase: d.phase}, d.err
}

func (d *double) SetLimits(limits map[limits.Dimension]int) ([]control.Change, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := make(map[string]int)
	for dim, n := range d.limits {
		before[dim.String()] = n
	}
	d.limits = limits
	return []control.Change{{Account: "a", Before: before}}, d.err
}

func (d *double) Act(a control.Action) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acts++
	d.phase = map[control.Action]control.Phase{control.Pause: control.Paused, control.Resume: control.Running, control.Drain: control.Draining}[a]
	return d.err
}

func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Add(name, value); name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWhatIsAskedIsAnswered(t *testing.T) {
	d := &double{phase: control.Running}
	h := control.Handler(d, control.Guard{})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/status", "", 200, `"phase":"running"`},
		{"HEAD", "/status", "", 200, ``},
		{"POST", "/pause", "", 200, `{"phase":"paused"}`},
		{"POST", "/resume", "anything", 200, `{"phase":"running"}`},
		{"POST", "/drain", "", 200, `{"phase":"draining"}`},
		{"POST", "/limits", `{"rpm":5}`, 200, `"before":{}`},
		{"POST", "/limits", `{"limits":{"rpm":null,"tpm":0}}`, 200, `"before":{"rpm":5}`},
		{"POST", "/status", "", 405, `"/status takes GET"`},
		{"GET", "/pause", "", 405, `"/pause takes POST"`},
		{"OPTIONS", "/limits", "", 405, `"/limits takes POST"`},
		{"GET", "/", "", 404, `"POST /drain"`},
		{"GET", "/status/", "", 404, `"endpoints":["GET /status"`},
		{"POST", "/limits", "", 400, `the body is empty`},
		{"POST", "/limits", `{"rpm":`, 400, `the JSON ends too early`},
		{"POST", "/limits", strings.Repeat(" ", 70<<10), 413, `larger than 65536 bytes`},
	} {
		w := ask(h, c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %.40s: %d %s, want %d %s", c.method, c.path, c.body, w.Code, w.Body, c.status, c.want)
		}
		if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %s with %v", c.method, c.path, w.Body, w.Header())
		}
		if allow := w.Header().Get("Allow"); (c.status == 405) != (allow != "") {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, allow)
		}
	}
	if d.acts != 3 || len(d.limits) != 2 || d.limits[limits.Requests] != 0 {
		t.Errorf("%d acts, limits %v", d.acts, d.limits)
	}
}

func TestWhoIsLetIn(t *testing.T) {
	const token = "0123456789abcdef"
	tcp := control.Guard{Token: token, Hosts: []string{"10.0.0.5", "build.example"}}
	good := "Authorization: Bearer " + token
	for _, c := range []struct {
		name    string
		guard   control.Guard
		headers []string
		want    int
	}{
		{"a socket", control.Guard{}, nil, 200},
		{"a socket, whatever its name", control.Guard{}, []string{"Host: whatever"}, 200},
		{"a page at a socket", control.Guard{}, []string{"Origin: null"}, 403},
		{"the token", tcp, []string{good}, 200},
		{"the token, spelled otherwise", tcp, []string{"Authorization: bearer  " + token}, 200},
		{"no token", tcp, nil, 401},
		{"an empty token", tcp, []string{"Authorization: Bearer "}, 401},
		{"another token", tcp, []string{"Authorization: Bearer 0123456789abcdeg"}, 401},
		{"a part of the token", tcp, []string{"Authorization: Bearer 0123456789abcde"}, 401},
		{"more than the token", tcp, []string{good + "0"}, 401},
		{"the token as a password", tcp, []string{"Authorization: Basic " + token}, 401},
		{"a page that knows the token", tcp, []string{good, "Origin: http://localhost"}, 403},
		{"a page whose origin is empty", tcp, []string{good, "Origin: "}, 403},
		{"a name that was led here", tcp, []string{good, "Host: evil.example"}, 403},
		{"the same with a port", tcp, []string{good, "Host: evil.example:8790"}, 403},
		{"no name", tcp, []string{good, "Host: "}, 403},
		{"a name that ends like one of ours", tcp, []string{good, "Host: evil.localhost"}, 403},
		{"loopback", tcp, []string{good, "Host: 127.0.0.1:8790"}, 200},
		{"loopback of the other kind", tcp, []string{good, "Host: [::1]:8790"}, 200},
		{"loopback without a port", tcp, []string{good, "Host: [::1]"}, 200},
		{"its own address", tcp, []string{good, "Host: 10.0.0.5:8790"}, 200},
		{"a name that was allowed", tcp, []string{good, "Host: Build.Example:8790"}, 200},
	} {
		d := &double{phase: control.Running}
		w := ask(control.Handler(d, c.guard), "POST", "/pause", "", c.headers...)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.want)
		}
		if (d.acts == 1) != (c.want == 200) {
			t.Errorf("%s: the run was paused %d times", c.name, d.acts)
		}
		if strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: the answer holds the token: %s", c.name, w.Body)
		}
		if c.want == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
}

func TestWhatATargetMeetsIsAnAnswer(t *testing.T) {
	d := &double{panics: true}
	h := control.Handler(d, control.Guard{})
	if w := ask(h, "GET", "/status", ""); w.Code != 500 || !strings.Contains(w.Body.String(), "internal error") {
		t.Errorf("a panic: %d %s", w.Code, w.Body)
	}
	d.panics = false
	for err, want := range map[error]int{control.ErrNotReady: 503, errors.New("broken"): 500} {
		d.err = err
		for _, path := range []string{"/pause", "/limits"} {
			if w := ask(h, "POST", path, `{"rpm":1}`); w.Code != want {
				t.Errorf("%v at %s: %d %s", err, path, w.Code, w.Body)
			}
		}
	}
}

func TestManyAskAtOnce(t *testing.T) {
	d := &double{phase: control.Running}
	h := control.Handler(d, control.Guard{})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			path := []string{"/pause", "/resume", "/limits", "/status"}[i%4]
			method := "POST"
			if path == "/status" {
				method = "GET"
			}
			if w := ask(h, method, path, `{"rpm":7}`); w.Code != 200 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		})
	}
	wg.Wait()
}

func TestLimitsThatAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		``:                             "the body is empty",
		`null`:                         "an object is needed",
		`[1]`:                          "an object is needed",
		`5`:                            "an object is needed",
		`{}`:                           "no limit is there",
		`{"limits":{}}`:                "no limit is there",
		`{"limits":5}`:                 "limits: an object is needed",
		`{"limits":null}`:              "limits: an object is needed",
		`{"limits":{"rpm":1},"rpm":2}`: "nothing but limits",
		`{"rpm":1}{"rpm":2}`:           "behind the object",
		`{"rpm":1,"rpm":2}`:            `"rpm" stands there twice`,
		`{"rmp":1}`:                    `"rmp" is no limit: it is one of concurrent, itpm, otpm, rpd, rpm, tpd, tpm`,
		`{"RPM":1}`:                    `"RPM" is no limit`,
		`{"burst_seconds":1}`:          "at the start alone",
		`{"model":"m","rpm":1}`:        "model cannot be chosen",
		`{"rpm":-1}`:                   "rpm: -1 is below zero",
		`{"rpm":1.5}`:                  "rpm: 1.5 is not a whole number",
		`{"rpm":1e300}`:                "is above 1000000000000",
		`{"rpm":1e400}`:                "a limit is a whole number",
		`{"rpm":"5"}`:                  "a limit is a whole number",
		`{"rpm":true}`:                 "a limit is a whole number",
		`{"rpm":[5]}`:                  "a limit is a whole number",
		`{"rpm":{}}`:                   "a limit is a whole number",
		`{"rpm":{"value":5,"source":"measured"}}`: "only limits whose source is told",
		`{"rpm":{"value":5,"limit":5}}`:           `"limit" is not known`,
		`{"rpm":5`:                                "ends too early",
		"{\"rpm\":\x00}":                          "no JSON",
		`{"rpm":NaN}`:                             "no JSON",
		strings.Repeat(`{"limits":`, 50000):       "",
	} {
		got, err := control.ParseLimits([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.60s: %v, %v, want an error with %q", body, got, err, want)
		}
	}
	got, err := control.ParseLimits([]byte(`{"limits":{"rpm":{"value":5,"source":"told","confidence":1,"at":"2026-01-01T00:00:00Z"},"tpm":{"value":null},"rpd":1e3}}`))
	if err != nil || got[limits.Requests] != 5 || got[limits.RequestsPerDay] != 1000 || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzParseLimits: what is taken is what encoding/json reads there, and can be set.
func FuzzParseLimits(f *testing.F) {
	f.Add([]byte(`{"limits":{"rpm":500,"tpm":null}}`))
	f.Add([]byte(`{"rpm":{"value":5,"source":"told"},"concurrent":0}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := control.ParseLimits(body)
		if err != nil {
			return
		}
		var fields map[string]any
		if json.Unmarshal(body, &fields) != nil || len(got) == 0 {
			t.Fatalf("%q was taken: %v", body, got)
		}
		var limits sluice.Limits
		for d, n := range got {
			at := limits.At(d)
			if at == nil {
				t.Fatalf("%q: no limit is %v", body, d)
			}
			*at = n
		}
		if err := limits.Check(); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}

func TestClientsSeeRefusals(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/status":
			io.WriteString(w, "<html>")
		}
	}))
	defer web.Close()
	a, err := control.ParseAddress(strings.TrimPrefix(web.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	c := control.NewClient(a, "")
	defer c.Close()
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "no run of Sluice") {
		t.Errorf("a page: %v", err)
	}
}

// FuzzHandler: whatever is asked, the answer is JSON, and without the token nothing is done.
func FuzzHandler(f *testing.F) {
	f.Add("GET", "/status", "localhost", "", "Bearer 0123456789abcdef", "")
	f.Add("POST", "/limits", "127.0.0.1:80", "", "bearer  0123456789abcdef", `{"limits":{"rpm":500}}`)
	f.Add("POST", "/drain", "evil.example", "http://evil.example", "Bearer 0123456789abcde", "{")
	f.Add("POST", "/pause", "[::1]", "", "Basic x", "")
	f.Fuzz(func(t *testing.T, method, path, host, origin, auth, body string) {
		d := &double{phase: control.Running}
		h := control.Handler(d, control.Guard{Token: "0123456789abcdef", Hosts: []string{}})
		r := httptest.NewRequest("GET", "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.Host = method, path, host
		r.Header.Set("Authorization", auth)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d: %q", w.Code, w.Body)
		}
		if done := d.acts > 0 || d.limits != nil || w.Code == http.StatusOK; done && (!strings.Contains(auth, "0123456789abcdef") || origin != "") {
			t.Errorf("%s %q of %q and %q by %q is answered: %d", method, path, origin, host, auth, w.Code)
		}
		if strings.Contains(w.Body.String(), "0123456789abcdef") {
			t.Errorf("the answer holds the token: %q", w.Body)
		}
	})
}
