package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// batchAPI is what differs between the providers' Batch APIs.
type batchAPI interface {
	traits() traits
	// serve answers a request whose key is right.
	serve(s *Server, r *control) reply
	// refusal is the body of an error.
	refusal(p *apiProblem) []byte
	// answered appends what a line that ran was answered, and undone a line that did not run, if it stands in the results.
	answered(b []byte, l *batchLine, status int, body []byte) []byte
	undone(b []byte, l *batchLine, expired bool) []byte
}

// traits are what a Batch API is like.
type traits struct {
	dialect  dialect
	pending  bool // it limits the requests that wait
	enqueues bool // and the tokens
	partial  bool // a batch that expired or was cancelled has results
	breaks   bool // a batch can fail as a whole
	ordered  bool // results stand in the order of the requests
	lists    bool // the results tell of the lines that did not run, too
	one      bool // there is one file of results, whatever became of the lines
	requests int  // that a batch may hold; 0: as many as there are
	bytes    int  // that a batch may have
}

// batchAPIOf tells whose Batch API a path belongs to; nil if it is none's.
func batchAPIOf(path string) batchAPI {
	switch {
	case path == "/v1/messages/batches", strings.HasPrefix(path, "/v1/messages/batches/"):
		return anthropicBatches{}
	case path == "/v1/files", path == "/v1/batches", strings.HasPrefix(path, "/v1/files/"), strings.HasPrefix(path, "/v1/batches/"):
		return openaiBatches{}
	case path == "/v1/batch/jobs", strings.HasPrefix(path, "/v1/batch/jobs/"):
		return mistralBatches{}
	case path == "/v1beta/batches", strings.HasPrefix(path, "/v1beta/batches/"), path == "/v1beta/files", strings.HasPrefix(path, "/v1beta/files/"),
		path == "/upload/v1beta/files", strings.HasPrefix(path, "/download/v1beta/files/"),
		strings.HasPrefix(path, "/v1beta/models/") && strings.HasSuffix(path, ":batchGenerateContent"):
		return geminiBatches{}
	}
	return nil
}

// control is a request to a Batch API.
type control struct {
	method, path string
	query        url.Values
	header       http.Header
	base         string // scheme and host, as the client has them
	body         []byte
	now          time.Time
}

// reply is the answer to one.
type reply struct {
	status  int
	header  map[string]string
	kind    string // media type; "": JSON
	body    []byte
	results *resultFile // the body is what it has
	lost    bool        // the answer never arrives
}

// apiProblem is an error of a Batch API. The wait is told where it is above zero.
type apiProblem struct {
	status  int
	kind    string // the type or status, in the provider's words; "": what usually goes with the status
	message string
	param   string
	code    string
	wait    time.Duration
	why     string // in BatchStats.Refused; "": by the status
}

// serveBatch sees a request to a Batch API through.
func (s *Server) serveBatch(api batchAPI, r *http.Request, w wire) {
	most := cmp.Or(s.config.Batches.MaxBytes, api.traits().bytes)
	body, ok := readBody(r, most+1<<20) // what stands around a file is no part of it
	if !ok {
		panic(http.ErrAbortHandler) // the client is gone
	}
	base := url.URL{Scheme: cmp.Or(r.URL.Scheme, "http"), Host: cmp.Or(r.Host, r.URL.Host)}
	if r.TLS != nil {
		base.Scheme = "https"
	}
	c := &control{method: r.Method, path: r.URL.Path, query: r.URL.Query(), header: r.Header, base: base.String(), body: body, now: time.Now()}
	out := s.askBatch(api, c, most+1<<20)
	if out.lost {
		w.reset()
		return
	}
	for name, value := range out.header {
		w.Header()[http.CanonicalHeaderKey(name)] = []string{value}
	}
	w.Header()["Content-Type"] = []string{cmp.Or(out.kind, "application/json")}
	if out.results == nil {
		w.whole(out.status, out.body)
		return
	}
	switch n := s.download(out.results); {
	case n > s.config.Batches.CutResults:
		w.whole(out.status, out.body)
	case n%2 == 1:
		w.tear(out.status, inMidLine(out.body))
	default:
		w.short(out.status, inMidLine(out.body))
	}
}

// readBody reads a body of no more than so many bytes, and one more if there are more.
func readBody(r *http.Request, most int) ([]byte, bool) {
	if r.Body == nil {
		return nil, true
	}
	var b bytes.Buffer
	if n := int(r.ContentLength); n > 0 && n <= most {
		b.Grow(n + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(r.Body, int64(most)+1))
	return b.Bytes(), err == nil
}

// askBatch checks the key and has the request answered.
func (s *Server) askBatch(api batchAPI, c *control, most int) reply {
	if want := s.config.Key; want != "" && !c.continues() {
		if key := api.traits().dialect.key(c.header, c.query); key != want {
			no := &refusal{reason: reasonBadKey}
			if key == "" {
				no.reason = reasonNoKey
			}
			s.countBatch("", no.name())
			status, body := api.traits().dialect.refusal(&call{id: RequestHash(nil)}, no)
			return reply{status: status, body: body}
		}
	}
	if len(c.body) > most {
		return s.refuseBatch(api, &apiProblem{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"})
	}
	return api.serve(s, c)
}

// refuseBatch answers with an error.
func (s *Server) refuseBatch(api batchAPI, p *apiProblem) reply {
	why := p.why
	if why == "" {
		why = WhyBadRequest
		if p.status == http.StatusNotFound || p.status == http.StatusForbidden {
			why = "not_found"
		}
	}
	s.countBatch("", why)
	out := reply{status: p.status, body: api.refusal(p), header: map[string]string{}}
	if p.wait > 0 && s.config.RetryAfter != RetryAfterNone {
		told := http.Header{}
		h := newHeaders(told)
		api.traits().dialect.retryHeaders(&h, s.config.RetryAfter, p.wait, time.Now())
		for name := range told {
			out.header[name] = told.Get(name)
		}
	}
	return out
}

// countBatch notes what was asked for and why it was refused.
func (s *Server) countBatch(what, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != "" {
		s.store.counts.Calls[what]++
	}
	if why != "" {
		s.store.counts.Refused[why]++
	}
}

// download counts a download, and tells how many of the same file there were with it.
func (s *Server) download(f *resultFile) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.downloads++
	if f.downloads <= s.config.Batches.CutResults {
		s.store.counts.Cut++
	}
	return f.downloads
}

// inMidLine shortens lines, if need be, so that their half ends within one.
func inMidLine(body []byte) []byte {
	for len(body) > 2 && (body[len(body)/2-1] == '\n' || body[len(body)/2] == '\n') {
		body = body[:len(body)-1]
	}
	return body
}

// window returns the elements of a list from one after the cursor on, at most limit; more says that others follow, and ok is
// false if there is no such element.
func window[T any](list []T, after string, limit int, id func(T) string) (part []T, more, ok bool) {
	if after != "" {
		for i, one := range list {
			if id(one) == after {
				part, ok = list[i+1:], true
				break
			}
		}
		if !ok {
			return nil, false, false
		}
	} else {
		part = list
	}
	if len(part) > limit {
		return part[:limit], true, true
	}
	return part, false, true
}

// number reads a number of the query between 1 and most; usual if it is not given or none.
func (c *control) number(name string, usual, most int) int {
	n, err := strconv.Atoi(c.query.Get(name))
	if err != nil || n < 1 {
		return usual
	}
	return min(n, most)
}

// decode reads a JSON object.
func (c *control) decode(v any) bool { return json.Unmarshal(c.body, v) == nil }

// unix is an instant as OpenAI and Mistral write it, or null if it has not come.
func unix(t, now time.Time) *int64 {
	if t.IsZero() || t.After(now) {
		return nil
	}
	n := t.Unix()
	return &n
}

// wholeWait is a wait as errors state it, in whole seconds.
func wholeWait(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) + "s" }
