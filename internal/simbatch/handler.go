// Package simbatch simulates the Batch APIs of OpenAI, Anthropic and Gemini: requests that are submitted together, run
// later at a lower price, and whose results are fetched as a file.
package simbatch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Host is the simulator of single requests, which answers the lines of batches. A path names the endpoint for a line.
type Host interface {
	// Authorize returns the rejection of a wrong key or version, with the reason that Stats counts; "" if both are right.
	Authorize(path string, r *http.Request) (why string, status int, body []byte)
	// Charge returns the model of a request and the tokens that it is charged; ok is false if the request is invalid. A request
	// that names no model is for the given one, the batch's.
	Charge(path, model string, request []byte) (of string, tokens int, ok bool)
	// Answer returns the response to a request at an instant. A fail of 400, 429 or 500 is that error; 0 is none.
	Answer(path, model string, request []byte, at time.Time, fail int) (status int, body []byte)
	// Luck returns the number in [0, 1) that decides a choice about a request or a file, for the n-th time from 0.
	Luck(choice uint64, about [16]byte, n uint32) float64
	// Hint adds the headers of a rejection that state the wait.
	Hint(path string, header http.Header, wait time.Duration)
}

// Handler serves the Batch APIs, which the path tells apart. It is safe for concurrent use.
type Handler struct {
	config  Config
	seed    uint64
	noStats bool
	host    Host

	mu      sync.Mutex
	files   []*file  // oldest first
	batches []*batch // oldest first
	ids     uint64   // so far
	tries   map[hash]uint32
	stats   Stats
	ran     map[hash]int // by LineHash
	paid    map[hash]int // by the hash of the request
}

// New returns a Handler for a valid Config. With noStats it keeps no accounts per request.
func New(c Config, seed uint64, noStats bool, host Host) *Handler {
	if c.Latency == 0 {
		c.Latency = time.Second
	}
	c.Latency = max(c.Latency, 0)
	return &Handler{
		config: c, seed: seed, noStats: noStats, host: host, tries: map[hash]uint32{}, ran: map[hash]int{}, paid: map[hash]int{},
		stats: Stats{Calls: map[string]int{}, Refused: map[string]int{}},
	}
}

// api is what differs between the providers' Batch APIs.
type api interface {
	traits() traits
	// problem returns the body of an error.
	problem(p *problem) any
	// missing returns the error for an unknown batch, file ("file") or route ("").
	missing(r *request, what string) *problem
	// create reads a request that creates a batch.
	create(h *Handler, r *request, b *batch) *problem
	// full returns the error for a batch beyond a limit.
	full(h *Handler, b *batch, short *shortfall) *problem
	// end cancels or deletes a batch, and returns the response.
	end(h *Handler, b *batch, r *request, deletes bool) (object, *problem)
	// object and file describe a batch and a file, and list a page of either, newest first.
	object(h *Handler, b *batch, r *request) object
	file(h *Handler, f *file, r *request) object
	list(h *Handler, batches []*batch, files []*file, r *request) object
	// line returns the line of a result file for a response; status 0: the line did not run.
	line(b *batch, l *line, status int, body []byte) string
}

// object is a JSON object of a response.
type object = map[string]any

// traits are the properties of a Batch API. They are many because each is one difference between the three.
type traits struct {
	batches, files string // paths
	separator      string // between an id and a verb in a path
	endpoint       string // path that answers lines; the request that creates a batch may name another one
	lacks          string // operations that the API does not have
	batchID        string // prefixes
	fileID         string

	pending  bool // requests in unfinished batches are limited
	enqueues bool // tokens in unfinished batches are limited
	partial  bool // a batch that expired or was cancelled has results
	breaks   bool // a batch can fail as a whole
	ordered  bool // results are in the order of the requests
	lists    bool // result files contain lines that did not run
	one      bool // there is one result file, for answers and errors
	requests int  // maximum of a batch; 0: none
	bytes    int  // maximum of a batch
}

const uploadPath = "/upload/v1beta/files" // Gemini's

// apiOf returns the API to which a path belongs, or nil.
func apiOf(path string) api {
	if path == uploadPath || strings.HasPrefix(path, "/v1beta/models/") && strings.HasSuffix(path, ":batchGenerateContent") {
		return gemini{}
	}
	path = strings.TrimPrefix(path, "/download")
	for _, a := range [...]api{openai{}, anthropic{}, gemini{}} {
		t := a.traits()
		for _, base := range [...]string{t.batches, t.files} {
			if rest, ok := strings.CutPrefix(path, base); ok && base != "" && (rest == "" || rest[0] == '/') {
				return a
			}
		}
	}
	return nil
}

// Serves reports whether a path belongs to a Batch API.
func Serves(path string) bool { return apiOf(path) != nil }

// request is a request to a Batch API.
type request struct {
	*http.Request
	api      api
	query    url.Values
	base     string // scheme and host, as the client has them
	body     []byte
	now      time.Time
	id, verb string // in the path
}

// reply is the response to one.
type reply struct {
	status int
	header http.Header
	kind   string // media type; "": JSON
	body   []byte
	lost   bool // the response never arrives
	cut    int  // 1: the body ends before its length; 2: it has no length, and ends in the middle
}

// problem is an error of a Batch API.
type problem struct {
	status  int
	message string
	kind    string // type or status in the provider's terms; "": the usual one of the status
	code    string
	param   string
	wait    time.Duration // 0: not stated
	why     string        // in Stats.Refused; "": by the status
}

func bad(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, api: apiOf(hr.URL.Path), query: hr.URL.Query()}
	_, size := h.maxima(r.api)
	size += 1 << 20 // for the form around a file
	var body bytes.Buffer
	if n := hr.ContentLength; n > 0 && n <= int64(size) {
		body.Grow(int(n) + bytes.MinRead)
	}
	if hr.Body != nil {
		if _, err := body.ReadFrom(io.LimitReader(hr.Body, int64(size)+1)); err != nil {
			panic(http.ErrAbortHandler) // the client disconnected
		}
	}
	base := url.URL{Scheme: cmp.Or(hr.URL.Scheme, "http"), Host: cmp.Or(hr.Host, hr.URL.Host)}
	if hr.TLS != nil {
		base.Scheme = "https"
	}
	r.base, r.body, r.now = base.String(), body.Bytes(), time.Now()
	h.mu.Lock()
	out := h.serve(r, size)
	h.mu.Unlock()
	out.write(w)
}

// write sends the reply. A panic with http.ErrAbortHandler breaks the connection.
func (out *reply) write(w http.ResponseWriter) {
	if out.lost {
		panic(http.ErrAbortHandler)
	}
	for name, values := range out.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", cmp.Or(out.kind, "application/json"))
	body := out.body
	if out.cut > 0 {
		for len(body) > 2 && (body[len(body)/2-1] == '\n' || body[len(body)/2] == '\n') { // its half has to end within a line
			body = body[:len(body)-1]
		}
	}
	if out.cut == 2 { // the body ends with the connection: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
		w.Header().Set("Transfer-Encoding", "identity") // which net/http takes for neither length nor chunks
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	if out.cut > 0 {
		body = body[:len(body)/2]
	}
	w.WriteHeader(out.status)
	w.Write(body) // the client may have disconnected
	if out.cut == 1 {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// operations by method, object and verb.
var operations = map[string]string{
	"POST batches ": "create", "GET batches ": "list", "GET batch ": "get", "POST batch cancel": "cancel", "DELETE batch ": "delete",
	"GET batch results": "results", "POST files ": "upload", "GET files ": "files", "GET file ": "file", "GET file content": "content",
	"GET file download": "content", "DELETE file ": "remove",
}

// serve answers a request.
func (h *Handler) serve(r *request, size int) reply {
	t := r.api.traits()
	if !continues(r) {
		if why, status, body := h.host.Authorize(t.endpoint, r.Request); why != "" {
			h.stats.Refused[why]++
			return reply{status: status, body: body}
		}
	}
	if len(r.body) > size {
		return h.refuse(r, &problem{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"})
	}
	if r.URL.Path == uploadPath {
		return h.resumable(r)
	}
	path, one, many := strings.TrimPrefix(r.URL.Path, "/download"), "batch", "batches"
	rest, ok := strings.CutPrefix(path, t.batches)
	if !ok && t.files != "" && strings.HasPrefix(path, t.files) {
		rest, one, many = path[len(t.files):], "file", "files"
	} else if !ok {
		rest = "" // Gemini's path to create a batch
	}
	r.id, r.verb, _ = strings.Cut(strings.TrimPrefix(rest, "/"), t.separator)
	if r.id == "" {
		one = many
	}
	operation := operations[r.Method+" "+one+" "+r.verb]
	if operation == "" || strings.Contains(t.lacks, operation) {
		return h.refuse(r, r.api.missing(r, ""))
	}
	h.stats.Calls[operation]++
	switch operation {
	case "create":
		return h.create(r)
	case "list":
		return answer(r.api.list(h, h.listedBatches(r), nil, r))
	case "upload":
		return h.upload(r)
	case "files":
		return answer(r.api.list(h, nil, h.listedFiles(r), r))
	case "file", "content", "remove":
		return h.ofFile(r, operation)
	}
	return h.ofBatch(r, operation)
}

// answer is the reply with an object.
func answer(o object) reply { return reply{status: http.StatusOK, body: encode(o)} }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // every part of it is JSON
	}
	return b
}

// refuse is the reply with an error.
func (h *Handler) refuse(r *request, p *problem) reply {
	why := p.why
	if why == "" {
		why = "bad_request"
		if p.status == http.StatusNotFound || p.status == http.StatusForbidden {
			why = "not_found"
		}
	}
	h.stats.Refused[why]++
	out := reply{status: p.status, body: encode(r.api.problem(p)), header: http.Header{}}
	if p.wait > 0 {
		h.host.Hint(r.api.traits().endpoint, out.header, p.wait)
	}
	return out
}

// maxima returns the maximum requests and bytes of a batch.
func (h *Handler) maxima(a api) (requests, size int) {
	t := a.traits()
	return cmp.Or(h.config.MaxRequests, t.requests), cmp.Or(h.config.MaxBytes, t.bytes)
}

// page returns the part of a list that a request asks for, by the id before it or the id after it, and whether more
// follows.
func page[T any](r *request, list []T, id func(T) string, usual, most int) (part []T, more bool) {
	q := r.query
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), q.Get("pageSize")))
	if err != nil || limit < 1 {
		limit = usual
	}
	limit = min(limit, most)
	before := q.Get("before_id")
	if before != "" {
		slices.Reverse(list)
	}
	if cursor := cmp.Or(before, q.Get("after"), q.Get("after_id"), q.Get("pageToken")); cursor != "" {
		i := slices.IndexFunc(list, func(one T) bool { return id(one) == cursor })
		if i < 0 {
			return nil, false
		}
		list = list[i+1:]
	}
	part, more = list[:min(len(list), limit)], len(list) > limit
	if before != "" {
		slices.Reverse(part)
	}
	return part, more
}

// hash identifies a request, a line or a file.
type hash [16]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// hashOf returns the hash of all parts together.
func hashOf(parts ...[]byte) hash {
	sum := sha256.New()
	for _, part := range parts {
		sum.Write(part)
	}
	return hash(sum.Sum(nil)[:16])
}

// LineHash returns the key of a line in [Stats].Ran: the first 16 bytes in hex of the SHA-256 of its custom_id (Gemini: its
// key), a line feed and its request.
func LineHash(customID string, request []byte) string {
	return hashOf([]byte(customID+"\n"), request).String()
}

// newID returns a new id. It does not show how many there are.
func (h *Handler) newID(prefix string) string {
	h.ids++
	return prefix + hashOf(fmt.Appendf(nil, "%d %d", h.seed, h.ids)).String()
}

// The random choices. The numbers below are the host's.
const (
	drawBad uint64 = iota + 6
	drawFail
	drawDrop
	drawOrder
)

// again counts a try, and returns the number of tries before.
func (h *Handler) again(what hash) uint32 {
	h.tries[what]++
	return h.tries[what] - 1
}

// drops reports whether the response to a creation is lost.
func (h *Handler) drops(what hash) bool {
	lost := h.config.Drop > 0 && h.host.Luck(drawDrop, what, h.again(what)) < h.config.Drop
	if lost {
		h.stats.Dropped++
	}
	return lost
}

// orNull is null for the empty string.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// unix is an instant in seconds, or null if it has not come.
func unix(t, now time.Time) any {
	if t.IsZero() || t.After(now) {
		return nil
	}
	return t.Unix()
}

// rfc3339 is an instant as Anthropic and Google write it.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// seconds is a wait in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.Itoa(int((d+time.Second-1)/time.Second)) + "s"
}
